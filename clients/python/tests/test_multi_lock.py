"""Several keys in one step, or none: one fence, one place in each queue, and no circle."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import pytest
import redis
import redis.asyncio

from redis_lock_client import Lock, LockNotOwnedError, MultiLock, NotSupportedError, ReadLock
from redis_lock_client import asyncio as ours
from redis_lock_client._libraries import library
from redis_lock_client._listening import Listeners
from redis_lock_client._protocol import SLOTS
from redis_lock_client.lock import run

from .crowd import crowd
from .proxy import Proxy
from .server import Server, running, until
from .test_places import LONG_GRACE, interrupt_when
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


async def test_the_asyncio_multi_lock(server: Server, async_client: Client) -> None:
    async with ours.MultiLock(async_client, ["a"], shared=["b"], timeout=30) as lock:
        assert await lock.check() == lock.fence
        assert (await lock.owned(), await lock.locked()) == (True, True)
        await lock.extend(100, replace_ttl=True)
        assert all(server.admin.pttl(name) > 90_000 for name in "ab")
        await server_delete(server, "b")
        assert not await lock.owned()
        with pytest.raises(LockNotOwnedError):
            await lock.reacquire()
        lock.raise_on_release_error = False
    assert not server.admin.exists("a", "b")


async def server_delete(server: Server, name: str) -> None:
    await asyncio.to_thread(server.admin.delete, name)


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


def test_with_a_full_pool_it_is_released(server: Server) -> None:
    pool = redis.ConnectionPool(port=server.port, max_connections=1)
    with redis.Redis(connection_pool=pool) as client:
        lock = MultiLock(client, BOTH, timeout=30)
        lock.acquire()
        connection = pool.get_connection("_")
        lock.reacquire()
        lock.release()
        pool.release(connection)
    assert is_free(server)


async def test_with_a_full_pool_the_asyncio_one_is_released(server: Server) -> None:
    pool = redis.asyncio.ConnectionPool(port=server.port, max_connections=1)
    async with Client(connection_pool=pool) as client:
        lock = ours.MultiLock(client, BOTH, timeout=30)
        await lock.acquire()
        connection = await pool.get_connection("_")
        await lock.reacquire()
        await lock.release()
        await pool.release(connection)
    assert is_free(server)
    await pool.disconnect()


def test_places_are_granted_in_the_order_of_arrival(server: Server) -> None:
    order: list[int] = []
    held = MultiLock(server.admin, BOTH, timeout=30)
    held.acquire()
    workers = []
    for number in range(9):
        timeout = (0.4, 0.7, None)[number // 3]
        # In either order, and single locks among them.
        names = (BOTH, BOTH[::-1], ["prices"])[number % 3]
        settings = {"name": names, "client": {"socket_timeout": timeout}}
        workers.append(waiter(KINDS[number // 3], server, partial(order.append, number), **settings))
        server.wait_for_waiters("prices", number + 1)
    calls = server.calls("lock.macquire")
    until(lambda: server.calls("lock.macquire") >= calls + 10, "several slices")
    held.release()
    assert all(worker.result() for worker in workers)
    assert order == list(range(9))
    assert is_free(server)


def test_an_interrupted_wait_leaves_nothing_behind(server: Server, client: redis.Redis) -> None:
    with Lock(server.admin, "prices", timeout=30):
        interrupt_when(lambda: server.waiters("prices") == 1)
        with pytest.raises(KeyboardInterrupt):
            MultiLock(client, BOTH, timeout=30, grace=LONG_GRACE).acquire()
        assert places(server) == [0, 0]
    assert is_free(server)


@pytest.mark.parametrize("wait", ["block", "notify"])
async def test_a_cancelled_wait_leaves_nothing_behind(
    server: Server, async_client: Client, wait: Literal["block", "notify"]
) -> None:
    with Lock(server.admin, "prices", timeout=30):
        lock = ours.MultiLock(async_client, BOTH, timeout=30, grace=LONG_GRACE, wait=wait)
        task = asyncio.create_task(lock.acquire())
        await asyncio.to_thread(server.wait_for_waiters, "stock", 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert places(server) == [0, 0]
    assert is_free(server)


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


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fault", ["cut", "silence"])
def test_a_lost_connection_does_not_cost_the_place(server: Server, kind: str, fault: str) -> None:
    order: list[str] = []
    held = Lock(server.admin, "prices", timeout=30)
    held.acquire()
    with Proxy(server.port) as proxy:
        settings = {"port": proxy.port, "client": {"socket_timeout": 1.0}}
        first = waiter(kind, server, lambda: order.append("first"), **settings)
        server.wait_for_waiters("prices", 1)
        # Of the other key only, which is free but for the place.
        later = waiter("threads", server, lambda: order.append("later"), name=["stock"])
        server.wait_for_waiters("stock", 2)
        getattr(proxy, fault)()
        held.release()
        assert first.result()
        assert later.result()
    assert order == ["first", "later"]
    assert is_free(server)


@pytest.mark.parametrize("kind", ["threads", "asyncio"])
def test_a_lost_reply_is_asked_for_again(server: Server, kind: str) -> None:
    with Proxy(server.port) as proxy:
        proxy.lose_reply_to(b"LOCK.MACQUIRE")
        assert waiter(kind, server, port=proxy.port).result()
        assert proxy.lost == 1
    assert is_free(server)


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


def test_crossing_ones_of_many_processes_never_stop_one_another(server: Server) -> None:
    seen = crowd(server.port, "MultiLock", [["a", "b"], ["b", "a"], ["b", "c", "a"], ["c"], ["c", "b"]])
    print({name: len(numbers) for name, numbers in seen.items()}, "holds of 3 processes with 18 workers")
    assert {name: max(numbers) for name, numbers in seen.items()} == {"a": 1, "b": 1, "c": 1}
    assert sum(len(numbers) for numbers in seen.values()) > 60
    assert not server.admin.exists("a", "b", "c")


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


@pytest.mark.parametrize("kind", KINDS)
def test_a_module_without_it_is_told(server: Server, kind: str) -> None:
    with Proxy(server.port) as proxy:
        proxy.refuse_command(b"LOCK.MACQUIRE")
        with pytest.raises(NotSupportedError, match=r"does not know LOCK.MACQUIRE: .*0\.2"):
            waiter(kind, server, port=proxy.port).result()
