"""The watchdog: long work keeps its lock, and a lost lock stops the work."""

import asyncio
import contextlib
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import pytest
import redis

from redis_lock_client import KeepAlive, Lock, LockError, LockNotOwnedError
from redis_lock_client import asyncio as ours
from redis_lock_client._libraries import library

from .proxy import Proxy
from .server import PATIENCE, Server, until

NOT_OWNED = library(redis.__name__).not_owned("keep alive", "stock")
TTL = 0.6


def test_work_may_take_longer_than_the_ttl(server: Server, client: redis.Redis) -> None:
    with Lock(client, "stock", timeout=TTL) as lock:
        fence = lock.fence
        with lock.keep_alive() as lease:
            until(lambda: server.calls("lock.renew") >= 7, "renewals for more than two ttls")
            assert not lease.lost.is_set()
            assert (lock.owned(), lock.fence) == (True, fence)
        renewals = server.calls("lock.renew")
        time.sleep(TTL / 2)
        assert server.calls("lock.renew") == renewals


def test_a_server_that_does_not_answer_is_told_by_the_end_of_the_lease(server: Server) -> None:
    # A renewal hangs for five seconds here, the lease does not.
    with Proxy(server.port) as proxy, redis.Redis(port=proxy.port) as client:
        lock = Lock(client, "stock", timeout=TTL)
        lock.acquire()
        with lock.keep_alive() as lease:
            proxy.pause()
            start = time.monotonic()
            assert lease.lost.wait(PATIENCE)
            assert time.monotonic() - start < TTL + 2


def test_a_release_that_leaves_the_hold_comes_after_the_last_renewal(
    server: Server, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    # With this linger it renews ten times a second.
    lock = Lock(client, "stock", timeout=30, at_least=5, linger=0.3, thread_local=False)
    lock.acquire()
    renew, under_way, go = lock._prolong, threading.Event(), threading.Event()

    async def late(*args: Any) -> bool:
        under_way.set()
        assert go.wait(PATIENCE)
        return await renew(*args)

    with ThreadPoolExecutor() as pool:
        with lock.keep_alive():
            monkeypatch.setattr(lock, "_prolong", late)
            assert under_way.wait(PATIENCE)
        releasing = pool.submit(lock.release)
        wait([releasing], timeout=0.2)
        go.set()
        releasing.result()
    until(lambda: server.calls("lock.renew") == 2, "the late renewal")
    assert 0 < server.admin.pttl("stock") <= 5_000


async def test_asyncio_a_release_that_leaves_the_hold_comes_after_the_last_renewal(
    server: Server, async_client: "redis.asyncio.Redis", monkeypatch: pytest.MonkeyPatch
) -> None:
    # With this linger it renews ten times a second.
    lock = ours.Lock(async_client, "stock", timeout=30, at_least=5, linger=0.3)
    await lock.acquire()
    renew, under_way, go = lock._prolong, asyncio.Event(), asyncio.Event()

    async def sent(*args: Any) -> bool:
        under_way.set()
        await go.wait()
        return await renew(*args)

    async def late(*args: Any) -> bool:
        # Nothing calls back what the network has.
        return await asyncio.shield(asyncio.create_task(sent(*args)))

    async with lock.keep_alive():
        monkeypatch.setattr(lock, "_prolong", late)
        await asyncio.wait_for(under_way.wait(), PATIENCE)
    releasing = asyncio.create_task(lock.release())
    await asyncio.wait([releasing], timeout=0.2)
    go.set()
    await releasing
    await asyncio.to_thread(until, lambda: server.calls("lock.renew") == 2, "the late renewal")
    assert 0 < server.admin.pttl("stock") <= 5_000


def test_the_end_of_a_lease_that_the_work_has_shortened_is_told(server: Server, client: redis.Redis) -> None:
    # The next renewal would come minutes later.
    lock = Lock(client, "stock", timeout=600)
    lock.acquire()
    with lock.keep_alive() as lease:
        lock.extend(0.5, replace_ttl=True)
        assert lease.lost.wait(PATIENCE)


async def test_asyncio_the_end_of_a_lease_that_the_work_has_shortened_is_told(
    async_client: "redis.asyncio.Redis",
) -> None:
    async def work(lock: ours.Lock) -> None:
        async with lock.keep_alive():
            await lock.extend(0.5, replace_ttl=True)
            await asyncio.sleep(PATIENCE)

    lock = ours.Lock(async_client, "stock", timeout=600)
    await lock.acquire()
    with pytest.raises(LockNotOwnedError):
        await work(lock)


def test_a_renewal_does_not_overtake_an_extension(
    server: Server, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    # With this linger it renews ten times a second.
    lock = Lock(client, "stock", timeout=30, linger=0.3, thread_local=False)
    lock.acquire()
    renew, under_way, go = lock._prolong, threading.Event(), threading.Event()

    async def late(token: bytes, ttl_ms: int, *args: Any) -> bool:
        if ttl_ms == 2_000:
            under_way.set()
            assert go.wait(PATIENCE)
        return await renew(token, ttl_ms, *args)

    monkeypatch.setattr(lock, "_prolong", late)
    with ThreadPoolExecutor() as pool:
        with lock.keep_alive():
            extending = pool.submit(lock.extend, 2, replace_ttl=True)
            assert under_way.wait(PATIENCE)
            wait([extending], timeout=0.5)
        go.set()
        assert extending.result()
    assert lock.local.lease.left() <= 2


async def test_asyncio_a_renewal_does_not_overtake_an_extension(
    async_client: "redis.asyncio.Redis", monkeypatch: pytest.MonkeyPatch
) -> None:
    # With this linger it renews ten times a second.
    lock = ours.Lock(async_client, "stock", timeout=30, linger=0.3)
    await lock.acquire()
    renew, under_way, go = lock._prolong, asyncio.Event(), asyncio.Event()

    async def late(token: bytes, ttl_ms: int, *args: Any) -> bool:
        if ttl_ms == 2_000:
            under_way.set()
            await go.wait()
        return await renew(token, ttl_ms, *args)

    monkeypatch.setattr(lock, "_prolong", late)
    async with lock.keep_alive():
        extending = asyncio.create_task(lock.extend(2, replace_ttl=True))
        await asyncio.wait_for(under_way.wait(), PATIENCE)
        await asyncio.wait([extending], timeout=0.5)
    go.set()
    assert await extending
    assert lock.local.lease.left() <= 2


def suspend(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Let the clocks of the operating system tell of a sleep from which the machine has just come back."""
    read = time.clock_gettime
    goes_on = {time.CLOCK_BOOTTIME, time.CLOCK_REALTIME}
    monkeypatch.setattr(time, "clock_gettime", lambda clock: read(clock) + (seconds if clock in goes_on else 0))


on_linux = pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="a clock of Linux")


@on_linux
def test_a_lease_ends_while_the_machine_is_suspended(client: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    # The next renewal would come minutes later.
    lock = Lock(client, "stock", timeout=600)
    lock.acquire()
    with lock.keep_alive() as lease:
        suspend(monkeypatch, 700)
        assert lease.lost.wait(PATIENCE)
    with pytest.raises(LockNotOwnedError):
        lock.reacquire()


@on_linux
async def test_asyncio_a_lease_ends_while_the_machine_is_suspended(
    async_client: "redis.asyncio.Redis", monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(lock: ours.Lock) -> None:
        async with lock.keep_alive():
            suspend(monkeypatch, 700)
            await asyncio.sleep(PATIENCE)

    lock = ours.Lock(async_client, "stock", timeout=600)
    await lock.acquire()
    with pytest.raises(LockNotOwnedError):
        await work(lock)


@pytest.mark.parametrize("at_least", [0, 5])
def test_a_release_by_the_work_ends_the_renewals_and_is_no_loss(
    server: Server, client: redis.Redis, at_least: float
) -> None:
    # With this linger it renews ten times a second.
    lock = Lock(client, "released", timeout=30, at_least=at_least, linger=0.3)
    lock.acquire()
    with lock.keep_alive() as lease:
        lock.release()
        until(lambda: "released" not in str(threading.enumerate()), "the end of the renewals")
        assert not lease.lost.is_set()
        assert server.admin.pttl("released") <= 5_000


@pytest.mark.parametrize("at_least", [0, 5])
async def test_asyncio_a_release_by_the_work_ends_the_renewals_and_is_no_loss(
    server: Server, async_client: "redis.asyncio.Redis", at_least: float
) -> None:
    # With this linger it renews ten times a second.
    lock = ours.Lock(async_client, "released", timeout=30, at_least=at_least, linger=0.3)
    await lock.acquire()
    async with lock.keep_alive() as lease:
        await lock.release()
        await asyncio.to_thread(until, lease._renewing.done, "the end of the renewals")
        assert server.admin.pttl("released") <= 5_000
    assert not lease.lost


def test_an_interrupt_between_its_threads_leaves_no_renewals(
    client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = Lock(client, "interrupted", timeout=30, linger=0.3)
    lock.acquire()
    start = threading.Thread.start

    def start_and_interrupt(thread: threading.Thread) -> None:
        start(thread)
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", start_and_interrupt)
    with pytest.raises(KeyboardInterrupt), lock.keep_alive():
        pass
    until(lambda: "interrupted" not in str(threading.enumerate()), "the end of the renewals")


def test_any_error_of_a_renewal_is_told_by_the_end_of_the_lease() -> None:
    with KeepAlive(failing(OSError("no credentials")), 300, "stock", None, NOT_OWNED) as lease:
        assert lease.lost.wait(PATIENCE)


def test_an_error_of_on_lost_is_told(client: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    told: queue.Queue[Any] = queue.Queue()
    monkeypatch.setattr(threading, "excepthook", told.put)
    lock = Lock(client, "stock", timeout=TTL)
    lock.acquire()
    with lock.keep_alive(on_lost=lambda: 1 // 0) as lease:
        client.delete("stock")
        assert told.get(timeout=PATIENCE).exc_type is ZeroDivisionError
        assert lease.lost.is_set()


def test_only_a_held_lock_is_kept_alive(client: redis.Redis) -> None:
    lock = Lock(client, "stock", timeout=TTL)
    with pytest.raises(LockError):
        lock.keep_alive()
    lock.acquire()
    client.delete("stock")
    with pytest.raises(LockNotOwnedError), lock.keep_alive():
        pass


async def test_a_context_is_entered_once_only(client: redis.Redis, async_client: "redis.asyncio.Redis") -> None:
    with Lock(client, "stock", timeout=TTL) as lock:
        kept = lock.keep_alive()
        with kept:
            pass
        with pytest.raises(RuntimeError, match="once only"), kept:
            pass
    async with ours.Lock(async_client, "stock", timeout=TTL) as held:
        kept_by_task = held.keep_alive()
        async with kept_by_task:
            pass
        with pytest.raises(RuntimeError, match="once only"):
            async with kept_by_task:
                pass


async def test_asyncio_work_is_cancelled_by_the_end_of_the_lease(server: Server) -> None:
    async def work(proxy: Proxy, lock: ours.Lock) -> None:
        async with lock.keep_alive():
            proxy.pause()
            await asyncio.sleep(PATIENCE)

    with Proxy(server.port) as proxy:
        async with redis.asyncio.Redis(port=proxy.port) as client:
            lock = ours.Lock(client, "stock", timeout=TTL)
            await lock.acquire()
            start = time.monotonic()
            with pytest.raises(LockNotOwnedError):
                await work(proxy, lock)
            assert time.monotonic() - start < TTL + 2


async def test_asyncio_any_error_of_a_renewal_is_told_by_the_end_of_the_lease() -> None:
    renew = failing(OSError("no credentials"))

    async def async_renew() -> bool:
        return renew()

    with pytest.raises(LockNotOwnedError):
        async with ours.KeepAlive(async_renew, 300, NOT_OWNED):
            await asyncio.sleep(PATIENCE)


async def test_asyncio_an_error_that_passes_loses_nothing() -> None:
    answers = iter([True, OSError("no credentials"), *[True] * 100])

    async def renew() -> bool:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return True

    async with ours.KeepAlive(renew, 600, NOT_OWNED) as lease:
        await asyncio.sleep(1.5)
    assert not lease.lost


async def test_asyncio_a_renewal_that_cannot_be_cancelled_does_not_delay_the_news() -> None:
    first, hangs_until = True, time.monotonic() + 4

    async def renew() -> bool:
        nonlocal first
        if not first:
            while time.monotonic() < hangs_until:
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(0.1)
        first = False
        return True

    with pytest.raises(LockNotOwnedError):
        async with ours.KeepAlive(renew, 300, NOT_OWNED):
            await asyncio.sleep(PATIENCE)
    assert time.monotonic() < hangs_until


async def test_asyncio_a_cancellation_from_outside_stays_one(async_client: "redis.asyncio.Redis") -> None:
    lock = ours.Lock(async_client, "stock", timeout=TTL)
    await lock.acquire()
    inside = asyncio.Event()

    async def work() -> None:
        async with lock.keep_alive():
            inside.set()
            await asyncio.sleep(PATIENCE)

    task = asyncio.create_task(work())
    await inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def failing(error: Exception) -> Callable[[], bool]:
    """A renewal that succeeds once and fails ever after."""
    answers = iter([True])

    def renew() -> bool:
        for answer in answers:
            return answer
        raise error

    return renew
