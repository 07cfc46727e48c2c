"""A lease counts from the sending of its request, and a grant that came late is renewed before the work begins."""

import asyncio
import math
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis
import redis.asyncio

from redis_lock_client import Lock, LockError, LockNotOwnedError, MultiLock, ReadLock, Semaphore, run_once
from redis_lock_client import asyncio as ours
from redis_lock_client._protocol import now

from .proxy import Proxy
from .server import Server, running, until
from .worker import Package

TRY_AGAIN = b"-TRYAGAIN not enough servers have confirmed it"
KINDS: list[Callable[[Any], Lock]] = [
    lambda client: Lock(client, "stock", timeout=2),
    lambda client: ReadLock(client, "stock", timeout=2),
    lambda client: Semaphore(client, "stock", 2, timeout=2),
    lambda client: MultiLock(client, ["stock", "other"], timeout=2),
]


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    with Proxy(server.port) as proxy:
        yield proxy


def lease_end(lock: Lock) -> float:
    end: float = lock.local.lease.end
    return end


def test_a_lease_counts_from_the_sending_less_the_drift(proxy: Proxy) -> None:
    with redis.Redis(port=proxy.port) as client:
        lock = Lock(client, "stock", timeout=100)
        lock.acquire()
        proxy.delay = 0.1
        sent = now()
        lock.reacquire()
        assert sent <= lease_end(lock) - 98.998 < sent + 0.1
        # A request that shortens it counts, whatever becomes of its reply.
        proxy.answer(b"LOCK.RENEW", b"-ERR of another kind")
        sent = now()
        with pytest.raises(redis.ResponseError):
            lock.extend(50, replace_ttl=True)
        assert sent <= lease_end(lock) - 49.498 < sent + 0.1


def test_a_release_without_a_reply_ends_the_lease(proxy: Proxy) -> None:
    with redis.Redis(port=proxy.port) as client:
        lock = Lock(client, "stock", timeout=100)
        lock.acquire()
        proxy.answer(b"LOCK.RELEASE", b"-ERR of another kind")
        with pytest.raises(redis.ResponseError):
            lock.release()
        # A server that lacks the release may answer so.
        proxy.answer(b"LOCK.RENEW", b":1")
        with pytest.raises(LockNotOwnedError):
            lock.reacquire()


def test_a_lease_that_is_over_stays_lost(server: Server, package: Package) -> None:
    begin: Callable[[Any], Any] = enter_and_exit if package.is_sync else aenter_and_exit
    with package.client(port=server.port) as client:
        lock = package.lock(client, timeout=0.3)
        package.now(lock.acquire())
        server.admin.execute_command("LOCK.RENEW", "stock", lock.local.token, 60_000)
        until(lambda: lease_end(lock) < now(), "the end of the lease")
        server.admin.config_resetstat()
        steps: list[Callable[[], Any]] = [
            lock.reacquire,
            lambda: lock.extend(10),
            lambda: lock.extend(10, replace_ttl=True),
            lambda: begin(lock),
        ]
        for step in steps:
            with pytest.raises(LockNotOwnedError):
                package.now(step())
    # It would prolong what is lost.
    assert server.calls("lock.renew") == 0


def test_a_late_grant_that_is_lost_is_asked_for_again(server: Server, proxy: Proxy) -> None:
    with redis.Redis(port=proxy.port) as client, Lock(client, "stock", timeout=60) as before:
        lock = Lock(client, "stock", timeout=2, thread_local=False)
        with ThreadPoolExecutor() as pool:
            waiting = pool.submit(lock.acquire)
            server.wait_for_waiters("stock", 1)
            time.sleep(0.3)
            proxy.answer(b"LOCK.RENEW", b":0", times=1)
            before.release()
            assert waiting.result()
        assert (proxy.refusals, server.calls("lock.acquire")) == (1, 3)
        lock.release()
        before.acquire()


def test_a_late_grant_that_is_lost_is_given_back(server: Server, proxy: Proxy, package: Package) -> None:
    proxy.delay = 0.15
    with package.client(port=proxy.port) as client:
        proxy.answer(b"LOCK.RENEW", b":0", times=1)
        assert not package.now(package.lock(client, timeout=2, blocking=False).acquire())
        assert proxy.refusals == 1
        assert not server.admin.exists("stock")
        # What its owner held stays.
        proxy.answer(b"LOCK.RENEW", b":0", times=1)
        assert not package.now(package.lock(client, timeout=2, blocking=False).acquire(token="mine"))
        assert server.tokens("stock") == ["mine"]


def test_a_late_grant_of_which_a_part_is_lost_is_asked_for_again(
    server: Server, proxy: Proxy, package: Package, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy.delay = 0.15
    with package.client(port=proxy.port) as client:
        lock = package.made("MultiLock", client, timeout=2)
        renew = lock._renew_once

        async def lose_one_and_renew(*args: Any) -> bool:
            monkeypatch.undo()
            proxy.delay = 0
            server.admin.delete("prices")
            renewed: bool = await renew(*args)
            return renewed

        monkeypatch.setattr(lock, "_renew_once", lose_one_and_renew)
        assert package.now(lock.acquire())
        assert package.now(lock.check()) == lock.fence
        assert server.calls("lock.macquire") == 2


def test_a_ttl_that_is_shorter_than_the_way_is_not_asked_for_without_a_pause(
    server: Server, proxy: Proxy, package: Package
) -> None:
    proxy.delay = 0.01
    with package.client(port=proxy.port) as client:
        assert not package.now(package.lock(client, timeout=0.004, blocking_timeout=1).acquire())
    assert server.calls("lock.acquire") <= 21
    assert not server.admin.exists("stock")


@pytest.mark.parametrize(
    ("timeout", "told"),
    [
        (-0.1, "not be negative"),
        (0.001, "above 0.003"),
        (0.003, "above 0.003"),
        (math.nan, "finite"),
        (math.inf, "finite"),
    ],
)
def test_a_timeout_must_leave_a_lease_that_ends(
    client: redis.Redis, package: Package, timeout: float, told: str
) -> None:
    with package.client() as either, pytest.raises(ValueError, match=f"^timeout must .*{told}"):
        package.lock(either, timeout=timeout)
    with pytest.raises(ValueError, match=f"^timeout must .*{told}"):
        run_once(client, "stock", pytest.fail, at_most=timeout)


def test_a_timeout_of_0_is_none(server: Server, client: redis.Redis) -> None:
    with Lock(client, "stock", timeout=0):
        assert server.admin.pttl("stock") > 2**47


def test_try_again_loses_nothing(server: Server, proxy: Proxy) -> None:
    with redis.Redis(port=proxy.port) as client, Lock(client, "stock", timeout=2) as lock, lock.keep_alive() as lease:
        server.admin.config_resetstat()
        proxy.answer(b"LOCK.RENEW", TRY_AGAIN, times=2)
        until(lambda: server.calls("lock.renew"), "a renewal that is answered")
        assert proxy.refusals == 2
        assert not lease.lost.is_set()
        proxy.answer(b"LOCK.RENEW", TRY_AGAIN)
        end = lease_end(lock)
        assert lease.lost.wait(20)
        assert now() >= end
        lock.raise_on_release_error = False


def test_an_acquire_asks_again(proxy: Proxy, package: Package) -> None:
    with package.client(port=proxy.port) as client:
        proxy.answer(b"LOCK.ACQUIRE", TRY_AGAIN, times=2)
        assert package.now(package.lock(client, timeout=2).acquire())
        assert proxy.refusals == 2


def test_keep_alive_begins_when_the_server_can_answer(proxy: Proxy, package: Package) -> None:
    begin: Callable[[Any], Any] = enter_and_exit if package.is_sync else aenter_and_exit
    with package.client(port=proxy.port) as client:
        lock = package.lock(client, timeout=2)
        package.now(lock.acquire())
        proxy.answer(b"LOCK.RENEW", TRY_AGAIN, times=2)
        package.now(begin(lock))
        assert proxy.refusals == 2
        proxy.answer(b"LOCK.RENEW", TRY_AGAIN)
        end = lease_end(lock)
        with pytest.raises(LockNotOwnedError):
            package.now(begin(lock))
        assert now() >= end


def enter_and_exit(lock: Lock) -> None:
    with lock.keep_alive():
        pass


async def aenter_and_exit(lock: ours.Lock) -> None:
    async with lock.keep_alive():
        pass


def test_a_renewal_by_hand_asks_again_until_the_lease_ends(server: Server, proxy: Proxy) -> None:
    with redis.Redis(port=proxy.port) as client:
        lock = Lock(client, "stock", timeout=2)
        lock.acquire()
        proxy.answer(b"LOCK.RENEW", TRY_AGAIN, times=2)
        assert lock.reacquire()
        assert (proxy.refusals, server.calls("lock.renew")) == (2, 1)
        proxy.answer(b"LOCK.RENEW", TRY_AGAIN)
        end = lease_end(lock)
        with pytest.raises(LockNotOwnedError):
            lock.extend(2, replace_ttl=True)
        assert now() >= end


async def test_asyncio_try_again_loses_nothing(server: Server, proxy: Proxy) -> None:
    async with (
        redis.asyncio.Redis(port=proxy.port) as client,
        ours.Lock(client, "stock", timeout=2) as lock,
        lock.keep_alive() as lease,
    ):
        server.admin.config_resetstat()
        proxy.answer(b"LOCK.RENEW", TRY_AGAIN, times=2)
        await asyncio.to_thread(until, lambda: server.calls("lock.renew"), "a renewal that is answered")
        assert proxy.refusals == 2
        assert not lease.lost


async def test_a_timeout_above_max_ttl_says_so(shared_server: Server) -> None:
    told = "^timeout .*at_most.* is too long: ttl must not be above lock.max-ttl$"
    with running(shared_server.version, "max-ttl", "2000") as server, redis.Redis(port=server.port) as client:
        for lock in (make(client) for make in KINDS):
            with lock:
                lock.timeout = 3
                with pytest.raises(LockError, match=told):
                    lock.reacquire()
                with pytest.raises(LockError, match=told):
                    lock.extend(3)
            server.admin.config_resetstat()
            with pytest.raises(LockError, match=told):
                lock.acquire()
            assert server.calls(lock.ACQUIRE.lower()) == 1
        with pytest.raises(LockError, match=told):
            run_once(client, "stock", lambda: None, at_most=3)
        async with redis.asyncio.Redis(port=server.port) as async_client:
            for wait in ("block", "notify"):
                with pytest.raises(LockError, match=told):
                    await ours.Lock(async_client, "stock", wait=wait).acquire()
