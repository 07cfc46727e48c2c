"""Behind a Sentinel and in a Cluster: a waiter and a holder follow the primary."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import pytest
import redis
import redis.asyncio
import redis.asyncio.sentinel
import redis.sentinel

import redis_lock_client.asyncio as ours
from redis_lock_client import Lock, MultiLock

from .proxy import Proxy
from .server import Server, as_map, until, versions
from .topologies import NAME, Cluster, SentinelSet, cluster_of_four, sentinel_set
from .worker import KINDS, Worker

# They are about the client: the newest server is enough. The module's own tests have them on every version.
NEWEST = versions()[-1]

Topology = SentinelSet | Cluster


@pytest.fixture
def sentinels() -> Iterator[SentinelSet]:
    with sentinel_set(NEWEST) as found:
        yield found


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with cluster_of_four(NEWEST) as found:
        yield found


def connect(where: Topology, library: Any = redis, **settings: Any) -> Any:
    if isinstance(where, SentinelSet):
        return library.sentinel.Sentinel(where.sentinels).master_for(NAME, **settings)
    return library.RedisCluster(host="127.0.0.1", port=where.nodes[1].port, **settings)


def waiter_of(kind: str, where: Topology, names: Any, what: str = "Lock", **settings: Any) -> Worker:
    options = {"what": what, "token": "waiter", "name": names, "blocking_timeout": 40}
    return Worker(kind, lambda package: connect(where, package.redis, **settings), **options)


def waits(server: Server, key: str) -> bool:
    """Whether the waiter is in the queue of a server, under its token."""
    with contextlib.suppress(redis.RedisError):
        return any("waiter" in str(waiter) for waiter in server.info(key).get("waiters", ()))
    return False


def kill(sentinels: SentinelSet) -> Server:
    """End the primary, and return the one that takes over."""
    primary = sentinels.primary()
    primary.kill()
    return sentinels.new_primary(primary)


FAILOVERS = pytest.mark.parametrize("fail_over", [SentinelSet.fail_over, kill], ids=["of two alive", "of one killed"])


@FAILOVERS
def test_sentinel_failover_in_the_middle_of_a_wait(
    sentinels: SentinelSet, fail_over: Callable[[SentinelSet], Server]
) -> None:
    client = connect(sentinels)
    holds = {kind: Lock(client, kind, timeout=60) for kind in KINDS}
    assert all(held.acquire() for held in holds.values())
    fences = {kind: held.fence or 0 for kind, held in holds.items()}
    waiters = {kind: waiter_of(kind, sentinels, kind) for kind in KINDS}
    before = sentinels.primary()
    until(lambda: all(waits(before, kind) for kind in KINDS), "the waiters")
    before.admin.wait(1, 1000)
    new = fail_over(sentinels)
    # They ask the new primary by themselves, under the same token, and the holds are there.
    until(lambda: all(waits(new, kind) for kind in KINDS), "the waiters at the new primary")
    for kind in KINDS:
        assert holds[kind].check() == fences[kind]
        assert not waiters[kind].is_done()
        released = time.monotonic()
        holds[kind].release()
        assert waiters[kind].fence_when_done() > fences[kind]
        # It is handed on. Nobody has to find out by asking again, 20 s later.
        assert time.monotonic() - released < 10


@FAILOVERS
async def test_sentinel_failover_in_the_middle_of_a_hold(
    sentinels: SentinelSet, fail_over: Callable[[SentinelSet], Server]
) -> None:
    async with connect(sentinels, redis.asyncio) as client:
        by_thread = Lock(connect(sentinels), "threads", timeout=9)
        by_task = ours.Lock(client, "asyncio", timeout=9)
        with by_thread, by_thread.keep_alive() as lease:
            async with by_task, by_task.keep_alive():
                await asyncio.to_thread(sentinels.primary().admin.wait, 1, 1000)
                new = await asyncio.to_thread(fail_over, sentinels)
                for key in ("threads", "asyncio"):
                    await asyncio.to_thread(until, renewed_at(new, key), "a renewal at the new primary")
                assert not lease.lost.is_set()
                assert by_thread.check() == by_thread.fence
                assert await by_task.check() == by_task.fence
        assert not new.admin.exists("threads", "asyncio")


def renewed_at(server: Server, key: str) -> Callable[[], bool]:
    """A question whether a hold has been renewed since now."""
    last = server.admin.pttl(key)

    def is_renewed() -> bool:
        nonlocal last
        before, last = last, server.admin.pttl(key)
        return bool(last > before)

    return is_renewed


def cluster_waiter(kind: str, cluster: Cluster, key: str) -> tuple[Lock, int, Worker]:
    """A hold, its fence, and a waiter behind it."""
    held = Lock(connect(cluster), key, timeout=60)
    held.acquire()
    assert held.fence
    waiter = waiter_of(kind, cluster, key)
    until(lambda: waits(cluster.owner(key), key), "the waiter")
    return held, held.fence, waiter


@pytest.mark.parametrize("kind", KINDS)
def test_cluster_failover_in_the_middle_of_a_wait(cluster: Cluster, kind: str) -> None:
    key = cluster.replicated_key()
    held, fence, waiter = cluster_waiter(kind, cluster, key)
    cluster.owner(key).admin.wait(1, 1000)
    new = cluster.fail_over()
    until(lambda: waits(new, key), "the waiter at the new primary")
    assert held.check() == fence
    held.release()
    assert waiter.fence_when_done() > fence


async def test_cluster_a_message_of_a_grant_is_not_taken_for_the_grant(cluster: Cluster) -> None:
    key = cluster.replicated_key()
    async with connect(cluster, redis.asyncio) as client:
        held = ours.Lock(client, key, timeout=30)
        await held.acquire()
        lock = ours.Lock(client, key, timeout=30, wait="notify")
        waiting = asyncio.create_task(lock.acquire())
        owner = cluster.owner(key)
        await asyncio.to_thread(owner.wait_for_waiters, key, 1)
        waiter = as_map(owner.info(key)["waiters"][0])
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
    keys = list(islice(cluster.keys_of(cluster.owner(cluster.replicated_key())), 3))
    settings = {"socket_timeout": 2}
    async with contextlib.AsyncExitStack() as stack, contextlib.AsyncExitStack() as working:
        client, *others = [
            await stack.enter_async_context(connect(cluster, redis.asyncio, **settings)) for _ in range(4)
        ]
        holds = [ours.Lock(client, key, timeout=15, wait="notify") for key in keys]
        for held in holds:
            await held.acquire()
            await working.enter_async_context(held.keep_alive())
        waiting = [
            asyncio.create_task(ours.Lock(other, key, timeout=30, wait="notify").acquire())
            for other in others
            for key in keys
        ]
        for key in keys:
            await asyncio.to_thread(cluster.owner(key).wait_for_waiters, key, len(others))
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


def test_cluster_failover_in_the_middle_of_a_hold(cluster: Cluster) -> None:
    key = cluster.replicated_key()
    lock = Lock(connect(cluster), key, timeout=6)
    with lock, lock.keep_alive() as lease:
        cluster.owner(key).admin.wait(1, 1000)
        new = cluster.fail_over()
        until(renewed_at(new, key), "a renewal at the new primary")
        assert not lease.lost.is_set()
        assert lock.check() == lock.fence
    assert not new.admin.exists(key)


@contextlib.contextmanager
def before_a_node(cluster: Cluster) -> Iterator[tuple[Proxy, str, dict[str, Any]]]:
    """A proxy before a node, a key of that node, and the settings of a client that goes there by the proxy."""
    node = cluster.nodes[2]
    with Proxy(node.port) as proxy:
        by_proxy = {("127.0.0.1", node.port): ("127.0.0.1", proxy.port)}
        yield proxy, cluster.key_of(node), {"address_remap": lambda address: by_proxy.get(address, address)}


@pytest.mark.parametrize("kind", KINDS)
def test_cluster_without_socket_timeout_a_wait_outlives_a_connection_that_falls_silent(
    cluster: Cluster, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("acquire.LONGEST_SLICE", "acquire.LATE", "listener.LATE", "listener.DEFAULT_TIMEOUT"):
        monkeypatch.setattr(f"redis_lock_client.{name}", 0.3)
    with before_a_node(cluster) as (proxy, key, settings):
        with Lock(connect(cluster), key, timeout=30):
            waiter = waiter_of(kind, cluster, key, socket_timeout=None, **settings)
            until(lambda: waits(cluster.owner(key), key), "the waiter")
            proxy.silence()
        assert waiter.result()


@pytest.mark.parametrize("kind", KINDS)
def test_cluster_a_slot_that_moves_under_a_waiter(cluster: Cluster, kind: str) -> None:
    source, target = cluster.nodes[1], cluster.nodes[2]
    key = cluster.key_of(source)
    held, fence, waiter = cluster_waiter(kind, cluster, key)
    cluster.move_slot(key, target)
    until(lambda: waits(target, key), "the waiter at the new node")
    assert held.check() == fence
    held.release()
    assert waiter.fence_when_done() > fence


@pytest.mark.parametrize("kind", KINDS)
def test_cluster_several_keys_share_a_slot(cluster: Cluster, kind: str) -> None:
    names = ["{7}:a", "{7}:b"]
    client = connect(cluster)
    with MultiLock(client, names, timeout=30) as held:
        assert held.owned()
        assert held.reacquire()
        waiter = waiter_of(kind, cluster, names, "MultiLock")
        until(lambda: waits(cluster.owner("{7}:a"), "{7}:b"), "the waiter")
        fence = held.fence
        assert fence
    assert waiter.fence_when_done() > fence
    assert not client.exists(*names)


async def test_cluster_several_keys_of_other_slots_are_explained(cluster: Cluster) -> None:
    told = r"in a cluster the keys of a multi-lock need one hash tag.*b'a' in slot 15495, b'b' in slot 3300"
    with pytest.raises(ValueError, match=told):
        MultiLock(connect(cluster), ["a", "b"], timeout=30)
    async with connect(cluster, redis.asyncio) as client:
        with pytest.raises(ValueError, match=told):
            ours.MultiLock(client, ["a", "b"], timeout=30)
