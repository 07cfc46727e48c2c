"""Behind a Sentinel and in a Cluster: a waiter and a holder follow the primary."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import pytest
import redis
import redis.asyncio
import redis.asyncio.sentinel
import redis.sentinel

import redis_lock_client.asyncio as ours
from redis_lock_client import MultiLock

from .package import KINDS, Kept, Package
from .proxy import Proxy
from .server import Server, until, versions
from .topologies import NAME, Cluster, SentinelSet, cluster_of_four, sentinel_set

# They are about the client: the newest server is enough. The module's own tests have them on every version.
NEWEST = versions()[-1]


@pytest.fixture
def sentinels() -> Iterator[SentinelSet]:
    with sentinel_set(NEWEST) as found:
        yield found


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with cluster_of_four(NEWEST) as found:
        yield found


def connect(where: SentinelSet | Cluster, library: Any = redis, **settings: Any) -> Any:
    if isinstance(where, SentinelSet):
        return library.sentinel.Sentinel(where.sentinels).master_for(NAME, **settings)
    return library.RedisCluster(host="127.0.0.1", port=where.nodes[1].port, **settings)


class Waiter:
    """Waits in the background behind a hold, under a token that is known."""

    def __init__(self, package: Package, where: SentinelSet | Cluster, names: Any, **settings: Any) -> None:
        self.package = package
        what = "Lock" if isinstance(names, str) else "MultiLock"
        holding, waiting = (connect(where, package.redis, **more) for more in ({}, settings))
        self.held = package.made(what, holding, names, timeout=9)
        assert package.now(self.held.acquire())
        self._kept = Kept(package, self.held)
        self._lock = package.made(what, waiting, names, blocking_timeout=40)
        self._key = names if isinstance(names, str) else names[1]
        self._waiting = package.begin(self._lock.acquire, token="waiter")

    def is_at(self, server: Server) -> bool:
        with contextlib.suppress(redis.RedisError):
            return any(waiter["token"] == "waiter" for waiter in server.waiters(self._key))
        return False

    def is_kept_at(self, server: Server) -> None:
        """Wait for a renewal there. The hold is the same, and the waiter waits for it."""
        until(renewed_at(server, self._key), "a renewal")
        assert not self._kept.is_lost()
        assert self.package.now(self.held.check()) == self.held.fence
        assert not self._waiting.done()

    def gets_it(self) -> None:
        """Release it. It is handed on: nobody has to find out by asking again, 20 s later."""
        self._kept.stop()
        fence = self.held.fence
        self.package.now(self.held.release())
        assert self._waiting.result(10)
        assert self._lock.fence > fence
        self.package.now(self._lock.release())


def renewed_at(server: Server, key: str) -> Callable[[], bool]:
    """A question whether a hold has been renewed since now."""
    last = server.admin.pttl(key)

    def is_renewed() -> bool:
        nonlocal last
        before, last = last, server.admin.pttl(key)
        return bool(last > before)

    return is_renewed


@pytest.mark.parametrize("kills", [False, True], ids=["of two alive", "of one killed"])
def test_sentinel_failover(sentinels: SentinelSet, kills: bool) -> None:
    waiters = [Waiter(Package(kind), sentinels, kind) for kind in KINDS]
    before = sentinels.primary()
    until(lambda: all(waiter.is_at(before) for waiter in waiters), "the waiters")
    before.admin.wait(1, 1000)
    new = sentinels.fail_over(kills)
    # They ask the new primary by themselves, under the same token.
    until(lambda: all(waiter.is_at(new) for waiter in waiters), "the waiters at the new primary")
    for waiter in waiters:
        waiter.is_kept_at(new)
        waiter.gets_it()
        waiter.package.end()


def test_cluster_failover(cluster: Cluster, way: Package) -> None:
    before, _ = cluster.replicated()
    waiter = Waiter(way, cluster, next(cluster.keys_of(before)))
    until(lambda: waiter.is_at(before), "the waiter")
    before.admin.wait(1, 1000)
    new = cluster.fail_over()
    until(lambda: waiter.is_at(new), "the waiter at the new primary")
    waiter.is_kept_at(new)
    waiter.gets_it()


def test_cluster_a_slot_that_moves_under_a_waiter(cluster: Cluster, way: Package) -> None:
    _, source, target, *_ = cluster.nodes
    key = next(cluster.keys_of(source))
    waiter = Waiter(way, cluster, key)
    until(lambda: waiter.is_at(source), "the waiter")
    cluster.move_slot(key, target)
    until(lambda: waiter.is_at(target), "the waiter at the new node")
    waiter.is_kept_at(target)
    waiter.gets_it()


def test_cluster_several_keys_share_a_slot(cluster: Cluster, way: Package) -> None:
    names = ["{7}:a", "{7}:b"]
    waiter = Waiter(way, cluster, names)
    until(lambda: waiter.is_at(cluster.owner("{7}:a")), "the waiter")
    waiter.is_kept_at(cluster.owner("{7}:a"))
    waiter.gets_it()
    assert not connect(cluster).exists(*names)


def test_cluster_without_socket_timeout_a_wait_outlives_a_connection_that_falls_silent(
    cluster: Cluster, way: Package, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("acquire.LONGEST_SLICE", "acquire.LATE", "listener.LATE", "listener.DEFAULT_TIMEOUT"):
        monkeypatch.setattr(f"redis_lock_client.{name}", 0.3)
    _, _, node, *_ = cluster.nodes
    with Proxy(node.port) as proxy:
        by_proxy = {("127.0.0.1", node.port): ("127.0.0.1", proxy.port)}
        settings = {"socket_timeout": None, "address_remap": lambda address: by_proxy.get(address, address)}
        waiter = Waiter(way, cluster, next(cluster.keys_of(node)), **settings)
        until(lambda: waiter.is_at(node), "the waiter")
        proxy.silence()
        waiter.gets_it()


async def test_cluster_a_message_of_a_grant_is_not_taken_for_the_grant(cluster: Cluster) -> None:
    owner, _ = cluster.replicated()
    key = next(cluster.keys_of(owner))
    async with connect(cluster, redis.asyncio) as client:
        held = ours.Lock(client, key, timeout=30)
        await held.acquire()
        lock = ours.Lock(client, key, timeout=30, wait="notify")
        waiting = asyncio.create_task(lock.acquire())
        await asyncio.to_thread(owner.wait_for_waiters, key, 1)
        (waiter,) = owner.waiters(key)
        # As a replica's subscribers hear it of a grant that its primary has not made.
        asked = owner.calls("lock.acquire")
        owner.admin.execute_command("SPUBLISH", waiter["channel"], f"granted 7 {len(key)} {key} {waiter['token']}")
        await asyncio.to_thread(until, lambda: owner.calls("lock.acquire") >= asked + 2, "two more requests")
        assert not waiting.done()
        await asyncio.to_thread(owner.wait_for_waiters, key, 1)
        await held.release()
        assert await asyncio.wait_for(waiting, 10)
        assert owner.tokens(key) == [waiter["token"]]
        await lock.release()


async def test_cluster_a_primary_that_hangs(cluster: Cluster) -> None:
    """Nothing is refused, and no connection ends: the silence has to tell."""
    before, _ = cluster.replicated()
    keys = list(islice(cluster.keys_of(before), 3))
    async with contextlib.AsyncExitStack() as stack, contextlib.AsyncExitStack() as working:
        client, *others = [
            await stack.enter_async_context(connect(cluster, redis.asyncio, socket_timeout=2)) for _ in range(4)
        ]
        holds = [ours.Lock(client, key, timeout=15, wait="notify") for key in keys]
        for held in holds:
            await held.acquire()
            await working.enter_async_context(held.keep_alive())
        waiters = [ours.Lock(other, key, timeout=30, wait="notify") for other in others for key in keys]
        waiting = [asyncio.create_task(waiter.acquire()) for waiter in waiters]
        for key in keys:
            await asyncio.to_thread(before.wait_for_waiters, key, len(others))
        hanging = cluster.hanging_primary()
        new = await asyncio.to_thread(hanging.__enter__)
        try:
            for key in keys:
                await asyncio.to_thread(new.wait_for_waiters, key, len(others))
                await asyncio.to_thread(until, renewed_at(new, key), "a renewal at the new primary")
            # A renewal after the release would find nothing, and cancel this task.
            await working.aclose()
            for key, held in zip(keys, holds, strict=True):
                await held.release()
                await asyncio.to_thread(until, lambda key=key: new.tokens(key), "a grant")
            done, _ = await asyncio.wait(waiting, timeout=5, return_when=asyncio.FIRST_COMPLETED)
            assert done
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
            await asyncio.to_thread(hanging.__exit__, None, None, None)


@pytest.mark.parametrize("library", [redis, redis.asyncio])
async def test_cluster_several_keys_of_other_slots_are_explained(cluster: Cluster, library: Any) -> None:
    told = r"in a cluster the keys of a multi-lock need one hash tag.*b'a' in slot 15495, b'b' in slot 3300"
    multi_lock: Any = MultiLock if library is redis else ours.MultiLock
    with pytest.raises(ValueError, match=told):
        multi_lock(connect(cluster, library), ["a", "b"], timeout=30)
