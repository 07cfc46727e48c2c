"""Many tasks that wait over two connections: one hears of the grants, the other carries the commands."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
import redis
import redis.asyncio
import redis.asyncio.sentinel
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from redis_lock_client import Lock as SyncLock
from redis_lock_client import acquire as protocol
from redis_lock_client.asyncio import Lock, MultiLock
from redis_lock_client.driver import SLOTS, AsyncDriver
from redis_lock_client.listener import Listeners

from .proxy import Proxy
from .server import PATIENCE, Server, as_map, running, until

Client = redis.asyncio.Redis


@pytest.fixture
async def client(server: Server) -> AsyncIterator[Client]:
    # No more than one of its pool: the subscriber's is beside it.
    async with Client.from_url(server.url, client_name="ours", max_connections=1, retry=no_retry()) as client:
        yield client


def no_retry() -> Retry:
    return Retry(NoBackoff(), 0)


def notified(client: Any, **options: Any) -> Lock:
    return Lock(client, "stock", **{"timeout": 30, "wait": "notify", **options})


async def queued(server: Server, number: int) -> None:
    await asyncio.to_thread(server.wait_for_waiters, "stock", number)


def ours(server: Server) -> list[dict[str, str]]:
    return [each for each in server.admin.client_list() if each["name"] == "ours"]


async def test_two_thousand_tasks_wait_over_two_connections(
    server: Server, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    # However long it takes until all have asked.
    monkeypatch.setattr("redis_lock_client.listener.ASK_AGAIN", 100)
    monkeypatch.setattr("redis_lock_client.asyncio.lock.NOTIFY_MS", 150_000)
    inside: dict[str, int] = {}
    most = 0
    waits: list[float] = []

    async def work(number: int) -> None:
        nonlocal most
        name = f"stock{number % 20}"
        asked = time.monotonic()
        async with Lock(client, name, timeout=30, wait="notify") as lock:
            waits.append(time.monotonic() - asked)
            inside[name] = inside.get(name, 0) + 1
            most = max(most, inside[name])
            await asyncio.sleep(0.001)
            inside[name] -= 1
            assert lock.fence

    held = [SyncLock(server.admin, f"stock{number}", timeout=100) for number in range(20)]
    assert all(each.acquire() for each in held)
    tasks = [asyncio.create_task(work(number)) for number in range(2_000)]
    await asyncio.to_thread(until, lambda: server.admin.info("lock")["lock_waiters"] == 2_000, "two thousand waiters")
    assert len(ours(server)) == 2
    start = time.monotonic()
    for each in held:
        each.release()
    await asyncio.wait_for(asyncio.gather(*tasks), 2 * PATIENCE)
    print(f"2,000 tasks: {max(waits):.2f} s for the last grant, {time.monotonic() - start:.2f} s after all had asked")
    assert (most, len(waits)) == (1, 2_000)
    assert len(ours(server)) == 2
    # Nobody had to ask twice.
    assert server.calls("lock.acquire") == 2_020
    assert server.connections() <= 3


async def test_a_new_primary_is_found_when_the_old_one_accepts_and_says_nothing(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "LATE", 0.3)
    with Proxy(server.port) as hanging:
        hanging.pause()
        ports = [hanging.port]

        async def primary(_: str) -> tuple[str, int]:
            return "127.0.0.1", ports.pop() if ports else server.port

        sentinel = redis.asyncio.sentinel.Sentinel([])
        monkeypatch.setattr(sentinel, "discover_master", primary)
        # As redis-py 5 to 7 by default.
        async with sentinel.master_for("it", socket_timeout=None) as client:
            first, second = (Lock(client, name, timeout=30, wait="notify") for name in ("stock", "prices"))
            tasks = [asyncio.create_task(first.acquire())]
            # Nobody but the subscription has asked for the primary yet.
            await asyncio.to_thread(until, lambda: not ports, "the connection to the old one")
            tasks.append(asyncio.create_task(second.acquire()))
            assert await asyncio.wait_for(asyncio.gather(*tasks), PATIENCE / 2) == [True, True]


async def test_a_connection_that_is_lost_right_after_its_handshake_leaves_nobody_asleep(server: Server) -> None:
    losses = 0

    class Closed(redis.asyncio.Connection):
        """The server has closed the first subscription by the end of its handshake."""

        async def read_response(self, *args: Any, **options: Any) -> Any:
            nonlocal losses
            # Only a subscription reads with a time of its own.
            if options.get("timeout") and not losses:
                losses += 1
                raise redis.ConnectionError("closed by the server")
            return await super().read_response(*args, **options)

    pool = redis.asyncio.ConnectionPool(connection_class=Closed, port=server.port)
    async with Client(connection_pool=pool) as client:
        locks = [Lock(client, name, timeout=30, wait="notify") for name in ("stock", "prices")]
        both = asyncio.gather(*(lock.acquire() for lock in locks))
        assert await asyncio.wait_for(both, PATIENCE / 2) == [True, True]
        assert losses == 1
    await pool.disconnect()


async def test_a_grant_to_a_token_that_gave_up_is_given_back(server: Server, client: Client) -> None:
    held = SyncLock(server.admin, "stock", timeout=30)
    held.acquire()
    task = asyncio.create_task(notified(client).acquire())
    await queued(server, 1)
    waiter = as_map(server.info("stock")["waiters"][0])
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    # A request that was late in the network.
    late = ("LOCK.ACQUIRE", "stock", waiter["token"], 30_000, "NOTIFY", 0, waiter["channel"])
    assert server.admin.execute_command(*late) in ("QUEUED", True)
    held.release()
    await asyncio.to_thread(until, lambda: not server.admin.exists("stock"), "the release of what nobody wants")


async def test_a_pool_that_is_full_keeps_no_task_from_its_lock(server: Server) -> None:
    pool = redis.asyncio.BlockingConnectionPool(port=server.port, max_connections=1)
    async with Client(connection_pool=pool) as client:
        used = await pool.get_connection("_")
        async with asyncio.timeout(PATIENCE), notified(client, linger=20) as lock, lock.keep_alive():
            assert lock.fence
        assert not server.admin.exists("stock")
        await pool.release(used)
    await pool.disconnect()


async def test_a_request_that_was_not_sent_yet_is_not_sent_after_a_cancellation(server: Server) -> None:
    with Proxy(server.port) as proxy:
        async with Client(port=proxy.port, retry=no_retry(), socket_timeout=1) as client:
            line = Listeners.of(AsyncDriver.of(client), client).line
            proxy.hold_reply_to(b"ECHO")
            # The line waits for its reply in vain, and the request stands behind it.
            before = asyncio.create_task(line.send([("ECHO", "anybody's")]))
            await asyncio.to_thread(until, lambda: server.calls("echo"), "the command before")
            lock = MultiLock(client, ["stock", "prices"], timeout=None, wait="notify")
            task = asyncio.create_task(lock.acquire())
            await asyncio.to_thread(until, lambda: line._queue, "the request in the line")
            task.cancel()
            done = await asyncio.gather(before, task, return_exceptions=True)
            assert [type(each) for each in done] == [redis.TimeoutError, asyncio.CancelledError]
            await asyncio.to_thread(until, lambda: server.calls("lock.release"), "the release")
            assert server.calls("lock.macquire") == 0
            assert not server.admin.exists("stock", "prices")


async def test_in_a_cluster_it_listens_where_the_key_is(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    with running(server.version, "--cluster-enabled", "yes") as node:
        node.admin.execute_command("CLUSTER", "ADDSLOTS", *range(SLOTS))
        until(lambda: node.admin.cluster("info")["cluster_state"] == "ok", "a cluster")
        async with redis.asyncio.RedisCluster.from_url(node.url) as cluster:
            # A brace in a key does not make a tag.
            for name in ("stock", "{stock}:7", "a}b{", "{}"):
                async with Lock(cluster, name, timeout=30, wait="notify"):
                    second = Lock(cluster, name, timeout=30, wait="notify")
                    task = asyncio.create_task(second.acquire())
                    await asyncio.to_thread(node.wait_for_waiters, name, 1)
                    waiter = as_map(node.info(name)["waiters"][0])
                    assert ("channel" in waiter) == (not caplog.records)
                assert await task
                await second.release()
    assert not caplog.records
