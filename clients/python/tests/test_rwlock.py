"""Readers and writers."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import redis

from redis_lock_client import LockNotOwnedError, RWLock
from redis_lock_client import asyncio as ours

from .server import Server


@pytest.fixture
def page(client: redis.Redis) -> RWLock:
    return RWLock(client, "page", timeout=30)


def test_readers_share_and_keep_writers_out(page: RWLock) -> None:
    with page.read() as one, page.read() as two:
        assert one.owned()
        assert two.owned()
        assert one.fence != two.fence
        assert not page.write(blocking=False).acquire()
    with page.write():
        assert not page.write(blocking=False).acquire()
        assert not page.read(blocking_timeout=0.1).acquire()


def test_a_reader_does_not_pass_a_waiting_writer(server: Server, page: RWLock) -> None:
    reader, writer = page.read(), page.write(thread_local=False)
    reader.acquire()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(writer.acquire)
        server.wait_for_waiters("page", 1)
        assert not page.read().acquire(blocking=False)
        reader.release()
        assert waiting.result()
    writer.release()


def test_a_reader_extends_and_loses_its_own_share(client: redis.Redis, page: RWLock) -> None:
    one, two = page.read(timeout=10), page.read(timeout=60)
    assert one.acquire()
    assert two.acquire()
    assert one.extend(10)
    assert one.owned()
    # The key lives as long as the longest share; only the own one was extended.
    assert 59_000 < client.pttl("page") <= 60_000
    assert 19_000 < one._remaining_ms(one.local.token) <= 20_000  # type: ignore[operator]
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


async def test_asyncio_readers_and_writers(async_client: "redis.asyncio.Redis") -> None:
    page = ours.RWLock(async_client, "page", timeout=30)
    async with page.read() as one, page.read() as two:
        assert one.fence != two.fence
        assert await one.extend(10)
        assert not await page.write(blocking=False).acquire()
    async with page.write():
        assert not await page.read(blocking_timeout=0.1).acquire()
