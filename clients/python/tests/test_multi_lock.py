"""Several keys in one step, or none: one fence, one place in each queue, and no circle."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import redis
import redis.asyncio

from redis_lock_client import Lock, MultiLock, ReadLock
from redis_lock_client import asyncio as ours
from redis_lock_client._libraries import library
from redis_lock_client._listening import Listeners
from redis_lock_client._protocol import SLOTS
from redis_lock_client.lock import run

from .proxy import Proxy
from .server import Server, running, until
from .test_places import interrupt_when
from .worker import KINDS, Worker

Client = redis.asyncio.Redis

BOTH = ["stock", "prices"]


def waiter(kind: str, server: Server, inside: Callable[[], object] = lambda: None, **settings: Any) -> Worker:
    port = settings.pop("port", server.port)
    return Worker(kind, port, inside, **{"what": "MultiLock", "name": BOTH, **settings})


def is_free(server: Server) -> bool:
    return not server.admin.exists(*BOTH)


def places(server: Server) -> list[int]:
    return [server.waiters(name) for name in BOTH]


def test_all_under_one_fence(server: Server, client: redis.Redis) -> None:
    lock = MultiLock(client, ["a", "b"], shared=["c"], timeout=30)
    assert not lock.locked()
    with lock:
        assert [server.mode(name) for name in "abc"] == ["exclusive", "exclusive", "shared"]
        assert len({*server.tokens("a"), *server.tokens("b"), *server.tokens("c")}) == 1
        assert lock.check() == lock.fence
        assert (lock.owned(), lock.locked()) == (True, True)
        with ReadLock(client, "c", timeout=30):
            assert lock.owned()
        lock.extend(100)
        assert all(server.admin.pttl(name) > 100_000 for name in "abc")
        lock.reacquire()
        assert all(0 < server.admin.pttl(name) <= 30_000 for name in "abc")
    assert not server.admin.exists("a", "b", "c")


def test_the_names_are_checked(client: redis.Redis) -> None:
    for wrong in ([], ["a", "a"]):
        with pytest.raises(ValueError, match="each once"):
            MultiLock(client, wrong)
    with pytest.raises(ValueError, match="each once"):
        MultiLock(client, ["a"], shared=["a"])
    with pytest.raises(TypeError):
        MultiLock(client, "stock")


@pytest.mark.parametrize("kind", KINDS)
def test_an_old_client_of_any_key_is_not_asked_for_too_often(server: Server, kind: str) -> None:
    server.admin.set("prices", "of an old client", px=400)
    assert waiter(kind, server).result()
    assert 3 <= server.calls("lock.macquire") <= 12


def test_after_a_lost_connection_all_is_given_back(server: Server, client: redis.Redis) -> None:
    lock = MultiLock(client, BOTH, timeout=30)
    for asyncio_too in (False, True):
        lock.acquire()
        token = lock.local.token
        if asyncio_too:
            asyncio.run(give_up_with_asyncio(server, token))
        else:
            run(lock._abandon_after(redis.ConnectionError(), token))
        assert is_free(server)


async def give_up_with_asyncio(server: Server, token: bytes) -> None:
    async with Client(port=server.port) as client:
        await ours.MultiLock(client, BOTH, timeout=30)._abandon_after(redis.ConnectionError(), token)


def test_an_interrupted_acquire_leaves_what_its_token_held(server: Server, client: redis.Redis) -> None:
    lock = MultiLock(client, BOTH, timeout=30)
    lock.acquire()
    token, fence = lock.local.token, lock.fence
    with Proxy(server.port) as proxy, redis.Redis(port=proxy.port, socket_timeout=None) as deaf:
        again = MultiLock(deaf, BOTH, timeout=30)
        proxy.hold_reply_to(b"LOCK.MACQUIRE")
        interrupt_when(lambda: server.calls("lock.macquire") == 2)
        with pytest.raises(KeyboardInterrupt):
            again.acquire(token=token)
    assert lock.check() == fence


async def test_a_grant_that_comes_after_the_end_is_given_back_as_a_whole(server: Server, async_client: Client) -> None:
    lock = ours.MultiLock(async_client, BOTH, timeout=30, wait="notify")
    listeners = Listeners.of(library(redis.__name__), async_client)
    with listeners.listen([b"stock", b"prices"], b"late", True) as listener:
        channel = await listener.subscribed()
    # The request was late in the network: its wait is over when it arrives.
    held = Lock(server.admin, "prices", timeout=30)
    held.acquire()
    asked = ("LOCK.MACQUIRE", 2, *BOTH, "late", 30_000, "NOTIFY", 0, channel)
    await async_client.execute_command(*asked)
    await asyncio.to_thread(server.wait_for_waiters, "stock", 1)
    held.release()
    await asyncio.to_thread(until, lambda: is_free(server), "the release of both")
    assert await lock.acquire(blocking=False)


async def test_in_a_cluster_by_a_hash_tag(server: Server) -> None:
    names = ["{order:7}:stock", "{order:7}:prices"]
    with running(server.version, "--cluster-enabled", "yes") as node:
        node.admin.execute_command("CLUSTER", "ADDSLOTS", *range(SLOTS))
        until(lambda: node.admin.cluster("info")["cluster_state"] == "ok", "a cluster")
        with redis.RedisCluster.from_url(node.url) as client, MultiLock(client, names, timeout=30) as lock:
            assert lock.owned()
            lock.reacquire()
        assert not node.admin.exists(*names)
        async with redis.asyncio.RedisCluster.from_url(node.url) as client:
            async with ours.MultiLock(client, names, timeout=30) as held:
                assert await held.owned()
                other = ours.MultiLock(client, names, timeout=30, wait="notify")
                task = asyncio.create_task(other.acquire())
                await asyncio.to_thread(node.wait_for_waiters, names[1], 1)
            assert await task
            await other.release()
        assert not node.admin.exists(*names)
