"""Many tasks that wait over two connections: one hears of the grants, the other carries the commands."""

import asyncio
from collections import Counter

import pytest
import redis
import redis.asyncio
import redis.asyncio.sentinel
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from redis_lock_client import Lock as SyncLock
from redis_lock_client.asyncio import Lock, MultiLock
from redis_lock_client.driver import AsyncDriver
from redis_lock_client.listener import Listeners

from .server import PATIENCE, cluster_of_one, until

Client = redis.asyncio.Redis


@pytest.fixture
async def client(server):
    # No more than one of its pool: the subscriber's is beside it.
    async with Client.from_url(server.url, client_name="ours", max_connections=1) as client:
        yield client


def notified(client, name="stock", **options):
    return Lock(client, name, **{"timeout": 30, "wait": "notify", **options})


async def both_are_granted(client):
    both = asyncio.gather(*(notified(client, name).acquire() for name in ("stock", "prices")))
    assert await asyncio.wait_for(both, PATIENCE / 2) == [True, True]


def ours(server):
    return [each for each in server.admin.client_list() if each["name"] == "ours"]


async def test_two_thousand_tasks_wait_over_two_connections(server, client, monkeypatch):
    # However long it takes until all have asked.
    monkeypatch.setattr("redis_lock_client.listener.ASK_AGAIN", 100)
    monkeypatch.setattr("redis_lock_client.aio.NOTIFY_MS", 150_000)
    inside: Counter[str] = Counter()

    async def work(number):
        name = f"stock{number % 20}"
        async with notified(client, name) as lock:
            inside[name] += 1
            most = inside[name]
            await asyncio.sleep(0.001)
            inside[name] -= 1
            assert lock.fence
        return most

    held = [SyncLock(server.admin, f"stock{number}", timeout=100) for number in range(20)]
    assert all(each.acquire() for each in held)
    tasks = [asyncio.create_task(work(number)) for number in range(2_000)]
    await asyncio.to_thread(until, lambda: server.admin.info("lock")["lock_waiters"] == 2_000, "two thousand waiters")
    # Whoever may publish can send what is no message of the module.
    server.admin.publish(server.waiters("stock0")[0]["channel"], "granted")
    for each in held:
        each.release()
    assert set(await asyncio.wait_for(asyncio.gather(*tasks), 2 * PATIENCE)) == {1}
    assert len(ours(server)) == 2
    # Nobody had to ask twice.
    assert server.calls("lock.acquire") == 2_020
    assert server.admin.info("stats")["total_connections_received"] <= 3
    await client.aclose()
    await asyncio.to_thread(until, lambda: not ours(server), "the end of the subscription")


async def test_a_new_primary_is_found_when_the_old_one_accepts_and_says_nothing(server, proxy, monkeypatch):
    monkeypatch.setattr("redis_lock_client.acquire.DEFAULT_TIMEOUT", 0.3)
    proxy.pause()
    ports = [proxy.port]

    async def primary(_):
        return "127.0.0.1", ports.pop() if ports else server.port

    sentinel = redis.asyncio.sentinel.Sentinel([])
    monkeypatch.setattr(sentinel, "discover_master", primary)
    # As redis-py 5 to 7 by default.
    async with sentinel.master_for("it", socket_timeout=None) as client:
        first = asyncio.create_task(notified(client, "first").acquire())
        # Nobody but the subscription has asked for the primary yet.
        await asyncio.to_thread(until, lambda: not ports, "the connection to the old one")
        await both_are_granted(client)
        assert await asyncio.wait_for(first, PATIENCE / 2)


async def test_a_connection_that_is_lost_right_after_its_handshake_leaves_nobody_asleep(server):
    losses = 0

    class Closed(redis.asyncio.Connection):
        """The server has closed the first subscription by the end of its handshake."""

        async def read_response(self, *args, **options):
            nonlocal losses
            # Only a subscription reads with a time of its own.
            if options.get("timeout") and not losses:
                losses += 1
                raise redis.ConnectionError("closed by the server")
            return await super().read_response(*args, **options)

    pool = redis.asyncio.ConnectionPool(connection_class=Closed, port=server.port)
    async with Client(connection_pool=pool) as client:
        await both_are_granted(client)
        assert losses == 1
    await pool.disconnect()


async def test_a_grant_to_a_token_that_gave_up_is_given_back(server, client):
    held = SyncLock(server.admin, "stock", timeout=30)
    held.acquire()
    task = asyncio.create_task(notified(client).acquire())
    await asyncio.to_thread(server.wait_for_waiters, "stock", 1)
    (waiter,) = server.waiters("stock")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    # A request that was late in the network.
    late = ("LOCK.ACQUIRE", "stock", waiter["token"], 30_000, "NOTIFY", 0, waiter["channel"])
    assert server.admin.execute_command(*late) in ("QUEUED", True)
    held.release()
    await asyncio.to_thread(until, lambda: not server.admin.exists("stock"), "the release of what nobody wants")


async def test_a_request_that_was_not_sent_yet_is_not_sent_after_a_cancellation(server, proxy):
    async with Client(port=proxy.port, retry=Retry(NoBackoff(), 0), socket_timeout=1) as client:
        line = Listeners.of(AsyncDriver.of(client), client).line
        proxy.lose_reply_to(b"ECHO", cuts=False)
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


async def test_in_a_cluster_it_listens_where_the_key_is(server):
    with cluster_of_one(server.version) as node:
        async with redis.asyncio.RedisCluster.from_url(node.url) as cluster:
            # A brace in a key does not make a tag.
            for name in ("stock", "{stock}:7", "a}b{", "{}"):
                second = notified(cluster, name)
                async with notified(cluster, name):
                    task = asyncio.create_task(second.acquire())
                    await asyncio.to_thread(node.wait_for_waiters, name, 1)
                    assert "channel" in node.waiters(name)[0]
                assert await task
                await second.release()
