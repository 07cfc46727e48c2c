"""The asyncio lock: the same interface, tasks instead of threads, and cancellation."""

import asyncio
from typing import Any

import pytest
import redis
import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from redis_lock_client.asyncio import Lock

from .proxy import Proxy, deaf_to_reply
from .server import Server, running, until

Client = redis.asyncio.Redis


def no_retry() -> Retry:
    return Retry(NoBackoff(), 0)


async def waiting(server: Server, lock: Lock, **options: Any) -> "asyncio.Task[bool]":
    """A task that waits in the queue of the server."""
    task = asyncio.create_task(lock.acquire(**options))
    await asyncio.to_thread(server.wait_for_waiters, "stock", 1)
    return task


async def test_the_client_makes_it(async_client: Client) -> None:
    async with async_client.lock("stock", timeout=10, lock_class=Lock) as lock:
        assert isinstance(lock, Lock)
        assert isinstance(lock, redis.asyncio.lock.Lock)
        assert await async_client.type("stock") == b"redislock"


async def test_all_in_either_protocol_and_decoding(server: Server, protocol: int) -> None:
    for decode in (False, True):
        async with Client.from_url(server.url, protocol=protocol, decode_responses=decode) as client:
            lock = Lock(client, "stock", timeout=10)
            assert lock.fence is None
            assert not await lock.locked()
            assert await lock.acquire(token=b"\xff\x00")
            assert lock.fence is not None
            assert await lock.owned()
            assert await lock.locked()
            assert await lock.extend(10)
            assert 19_000 < await client.pttl("stock") <= 20_000
            assert await lock.reacquire()
            assert await client.pttl("stock") <= 10_000
            await lock.release()
            assert not await lock.owned()


async def test_tasks_exclude_each_other_in_turn(server: Server, async_client: Client) -> None:
    inside, most, order = 0, 0, []

    async def work(number: int) -> None:
        nonlocal inside, most
        for _ in range(5):
            async with Lock(async_client, "stock", timeout=30):
                inside += 1
                most = max(most, inside)
                order.append(number)
                await asyncio.sleep(0.001)
                inside -= 1

    await asyncio.gather(*(work(number) for number in range(8)))
    assert (most, len(order)) == (1, 40)
    # Nobody polls: one command for each acquisition.
    assert server.calls("lock.acquire") == 40


async def test_waiting_goes_on_over_slices_below_the_socket_timeout(server: Server) -> None:
    async with Client.from_url(server.url, socket_timeout=0.4, retry=no_retry()) as impatient:
        held = Lock(impatient, "stock", timeout=30)
        await held.acquire()
        task = await waiting(server, Lock(impatient, "stock", timeout=30))
        connections = server.connections()
        await asyncio.to_thread(until, lambda: server.calls("lock.acquire") >= 5, "several slices")
        assert not task.done()
        # A slice that outlives the socket timeout costs its connection.
        assert server.connections() == connections
        await held.release()
        assert await task


async def test_a_lost_reply_does_not_lose_the_lock(server: Server) -> None:
    with Proxy(server.port) as proxy:
        async with Client(port=proxy.port, retry=no_retry()) as client:
            await client.ping()
            proxy.lose_reply_to(b"LOCK.ACQUIRE")
            async with Lock(client, "stock", timeout=30) as lock:
                assert proxy.lost == 1
                assert server.calls("lock.acquire") == 2
                assert await lock.owned()


async def test_a_cancelled_wait_leaves_nothing_behind(server: Server, async_client: Client) -> None:
    async with Lock(async_client, "stock", timeout=30):
        task = await waiting(server, Lock(async_client, "stock", timeout=30))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.to_thread(server.wait_for_waiters, "stock", 0)
    assert not await async_client.exists("stock")


async def test_a_wait_cancelled_with_its_grant_on_the_way_leaves_nothing_behind(
    server: Server, async_client: Client
) -> None:
    async with deaf_to_reply(server.port, b"LOCK.ACQUIRE") as client:
        task = asyncio.create_task(Lock(client, "stock").acquire())
        await asyncio.to_thread(until, lambda: server.admin.exists("stock"), "the grant")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not await async_client.exists("stock")


async def test_a_cancellation_counts_at_whatever_moment(server: Server) -> None:
    async with Client.from_url(server.url, socket_timeout=0.4) as client:
        await client.ping()
        async with Lock(client, "stock", timeout=30):
            for steps in range(40):
                task = asyncio.create_task(Lock(client, "stock", timeout=30).acquire())
                for _ in range(steps):
                    await asyncio.sleep(0)
                task.cancel()
                # Waits for ever if the cancellation was swallowed.
                _, pending = await asyncio.wait([task], timeout=2)
                assert not pending, f"swallowed after {steps} steps"
                assert task.cancelled()
        assert not await client.exists("stock")


async def test_a_cluster_finds_the_node_of_the_lock(server: Server) -> None:
    with running(server.version, "--cluster-enabled", "yes") as node:
        node.admin.execute_command("CLUSTER", "ADDSLOTS", *range(16384))
        until(lambda: node.admin.cluster("info")["cluster_state"] == "ok", "a cluster")
        async with redis.asyncio.RedisCluster.from_url(node.url) as cluster:
            lock = cluster.lock("stock", timeout=10, lock_class=Lock)
            async with lock:
                assert await lock.owned()
                assert not await cluster.lock("stock", blocking_timeout=0.1, lock_class=Lock).acquire()
                await lock.extend(5)
            assert not await lock.locked()


async def test_waiters_that_have_the_whole_pool_do_not_keep_the_holder_from_releasing(
    server: Server, protocol: int
) -> None:
    async with Client.from_url(server.url, max_connections=4, protocol=protocol) as client:

        async def wait() -> bool:
            async with Lock(client, "stock", timeout=30):
                return True

        held = Lock(client, "stock", timeout=30)
        await held.acquire()
        waiting = [asyncio.create_task(wait()) for _ in range(4)]
        await asyncio.to_thread(server.wait_for_waiters, "stock", 4)
        with pytest.raises(redis.ConnectionError, match="Too many connections"):
            await client.ping()
        await held.reacquire()
        await held.release()
        assert all(await asyncio.gather(*waiting))
    assert server.connections() <= 7


async def test_a_release_that_was_not_sent_can_be_repeated(server: Server) -> None:
    pool = redis.asyncio.BlockingConnectionPool.from_url(server.url, max_connections=1, timeout=0.1)
    async with Client(connection_pool=pool) as client:
        lock = Lock(client, "stock", timeout=30)
        await lock.acquire()
        connection = await pool.get_connection("_")
        with pytest.raises(redis.ConnectionError):
            await lock.release()
        assert lock.fence
        await pool.release(connection)
        await lock.release()
        assert lock.fence is None
    assert not server.admin.exists("stock")
