"""Readers and writers."""

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis

from redis_lock_client import LockNotOwnedError, RWLock
from redis_lock_client import asyncio as ours
from redis_lock_client.lock import run

from .proxy import Proxy, deaf_to_reply
from .server import Server, until


@pytest.fixture
def page(client: redis.Redis) -> RWLock:
    return RWLock(client, "page", timeout=30)


def test_a_reader_extends_and_loses_its_own_share(client: redis.Redis, page: RWLock) -> None:
    one, two = page.read(timeout=10), page.read(timeout=60)
    assert one.acquire()
    assert two.acquire()
    assert one.extend(10)
    assert one.owned()
    # The key lives as long as the longest share; only the own one was extended.
    assert 59_000 < client.pttl("page") <= 60_000
    share = run(one._held(one.local.token))
    assert share
    assert 19_000 < share.ttl_ms <= 20_000
    client.execute_command("LOCK.RELEASE", "page", one.local.token)
    with pytest.raises(LockNotOwnedError):
        one.extend(10)
    assert two.owned()


def test_the_token_converts_in_both_directions(page: RWLock) -> None:
    reader, writer = page.read(), page.write()
    reader.acquire()
    assert writer.acquire(blocking=False, token=reader.local.token)
    assert writer.fence == reader.fence
    assert not page.read().acquire(blocking=False)
    assert reader.acquire(token=writer.local.token)
    assert page.read().acquire(blocking=False)


def test_the_second_reader_that_wants_to_write_is_told(server: Server, page: RWLock) -> None:
    one, two = page.read(thread_local=False), page.read()
    one.acquire()
    two.acquire()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(page.write().acquire, token=one.local.token)
        server.wait_for_waiters("page", 1)
        with pytest.raises(redis.ResponseError, match="DEADLOCK"):
            page.write().acquire(token=two.local.token)
        two.release()
        assert waiting.result()


def test_an_interrupted_upgrade_that_was_granted_is_converted_back(server: Server, page: RWLock) -> None:
    with page.read() as one, Proxy(server.port) as proxy, redis.Redis(port=proxy.port) as client:
        client.ping()
        proxy.hold_reply_to(b"RWLOCK.WLOCK")
        with interrupted(lambda: server.mode("page") == "exclusive"), pytest.raises(KeyboardInterrupt):
            RWLock(client, "page", timeout=60).write().acquire(token=one.local.token)
        assert one.owned()
        # Shared, and for as long as it was.
        assert page.read().acquire(blocking=False)
        held = run(one._held(one.local.token))
        assert held
        assert held.ttl_ms <= 30_000


async def cancelled(acquire: Awaitable[bool], when: Callable[[], bool]) -> None:
    task = asyncio.ensure_future(acquire)
    await asyncio.to_thread(until, when, "the moment to cancel")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_asyncio_a_cancelled_upgrade_that_was_granted_is_converted_back(
    server: Server, async_client: "redis.asyncio.Redis"
) -> None:
    page = ours.RWLock(async_client, "page", timeout=30)
    async with page.read() as one:
        async with deaf_to_reply(server.port, b"RWLOCK.WLOCK") as client:
            writer = ours.RWLock(client, "page", timeout=60).write()
            await cancelled(writer.acquire(token=one.local.token), lambda: server.mode("page") == "exclusive")
        assert await one.owned()
        assert await page.read().acquire(blocking=False)


async def test_asyncio_a_cancelled_downgrade_leaves_the_writer_alone(
    server: Server, async_client: "redis.asyncio.Redis"
) -> None:
    page = ours.RWLock(async_client, "page", timeout=30)
    async with page.write() as writer:
        async with deaf_to_reply(server.port, b"RWLOCK.RLOCK") as client:
            reader = ours.RWLock(client, "page", timeout=60).read()
            await cancelled(reader.acquire(token=writer.local.token), lambda: server.mode("page") == "shared")
        assert await writer.owned()
        assert server.mode("page") == "exclusive"


async def test_asyncio_a_cancelled_upgrade_of_a_share_that_ended_gives_back_what_it_got(
    server: Server, async_client: "redis.asyncio.Redis"
) -> None:
    page = ours.RWLock(async_client, "page", timeout=30)
    one, two = page.read(), page.read()
    await one.acquire()
    await two.acquire()

    def granted_anew() -> bool:
        if server.waiters("page"):
            server.admin.delete("page")
        return server.mode("page") == "exclusive"

    async with deaf_to_reply(server.port, b"RWLOCK.WLOCK") as client:
        writer = ours.RWLock(client, "page", timeout=30).write()
        await cancelled(writer.acquire(token=one.local.token), granted_anew)
    assert not await async_client.exists("page")


@contextlib.contextmanager
def interrupted(when: Callable[[], bool]) -> Iterator[None]:
    """Interrupt the main thread at that moment."""

    def wait() -> None:
        until(when, "the moment to interrupt")
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=wait)
    thread.start()
    yield
    thread.join()
