"""`linger`: a hold that ends soon after its connection is lost, and not otherwise."""

import asyncio
import contextlib
import time
from typing import Any

import pytest
import redis
import redis.asyncio
import redis.asyncio.retry
from redis.backoff import NoBackoff

from redis_lock_client import Lock, LockNotOwnedError, MultiLock, RWLock
from redis_lock_client import asyncio as ours
from redis_lock_client._protocol import UNKNOWN, Held

from .proxy import Proxy
from .server import Server, until
from .test_waiting import NO_RETRY
from .worker import BOTH, Package

LINGER = 0.6
LOCKS: list[tuple[str, dict[str, Any]]] = [
    ("Lock", {}),
    ("ReadLock", {}),
    ("Semaphore", {"permits": 3}),
    ("Semaphore", {"permits": 1}),
    ("MultiLock", {"shared": ["read"]}),
]


@pytest.mark.parametrize(("what", "options"), LOCKS)
@pytest.mark.parametrize("wait", ["block", "notify"])
def test_a_renewal_binds_it_to_the_next_connection(
    server: Server, package: Package, what: str, options: dict[str, Any], wait: str
) -> None:
    if wait == "notify" and package.is_sync:
        pytest.skip("asyncio only")
    options = options | ({} if package.is_sync else {"wait": wait})
    client = package.redis.Redis(port=server.port)
    lock = package.made(what, client, linger=LINGER, **options)
    assert package.now(lock.acquire())
    fence = package.now(lock.check())
    server.admin.execute_command("CLIENT", "KILL", "SKIPME", "yes")
    assert package.now(lock.reacquire())
    time.sleep(2 * LINGER)
    assert (lock.fence, package.now(lock.check())) == (fence, fence)
    package.close(client)
    start = time.monotonic()
    until(lambda: not server.admin.exists(*BOTH, "read"), "the end of the hold")
    assert time.monotonic() - start < 10


def test_a_renewal_binds_a_share_beside_permits(server: Server, package: Package) -> None:
    server.admin.execute_command("LOCK.ACQUIRE", "stock", "permit", 60_000, "LIMIT", 3)
    client = package.redis.Redis(port=server.port)
    lock = package.made("ReadLock", client, linger=LINGER)
    assert package.now(lock.acquire())
    server.admin.execute_command("CLIENT", "KILL", "SKIPME", "yes")
    assert package.now(lock.reacquire())
    package.close(client)
    until(lambda: server.tokens("stock") == ["permit"], "the end of the share")


def test_keep_alive_binds_it_to_the_next_connection(server: Server) -> None:
    with redis.Redis(port=server.port) as client:
        lock = Lock(client, "stock", timeout=30, linger=LINGER)
        lock.acquire()
        server.admin.execute_command("CLIENT", "KILL", "SKIPME", "yes")
        with lock.keep_alive():
            # The last one has just come: none is under way when the client closes.
            until(lambda: server.calls("lock.acquire") >= 8, "bindings for more than two lingers")
            assert lock.check() == lock.fence
    until(lambda: not server.admin.exists("stock"), "the end of the hold")


def test_a_lost_connection_is_told_when_the_hold_has_lingered(server: Server) -> None:
    with Proxy(server.port) as proxy, redis.Redis(port=proxy.port, retry=NO_RETRY) as client:
        lock = Lock(client, "stock", timeout=30, linger=1)
        lock.acquire()
        with lock.keep_alive() as lease:
            proxy.close()
            next_one = Lock(server.admin, "stock", timeout=30)
            assert next_one.acquire(blocking_timeout=20)
            # Before, but for the scheduling of threads.
            assert lease.lost.wait(2)
            next_one.release()


async def test_asyncio_a_lost_connection_is_told_when_the_hold_has_lingered(server: Server) -> None:
    async def work(proxy: Proxy, lock: ours.Lock) -> None:
        async with lock.keep_alive():
            proxy.close()
            await asyncio.to_thread(until, lambda: not server.admin.exists("stock"), "the end of the hold")
            await asyncio.sleep(2)

    retry = redis.asyncio.retry.Retry(NoBackoff(), 0)
    with Proxy(server.port) as proxy:
        async with redis.asyncio.Redis(port=proxy.port, retry=retry) as client:
            lock = ours.Lock(client, "stock", timeout=30, linger=1)
            await lock.acquire()
            with pytest.raises(LockNotOwnedError):
                await work(proxy, lock)


def test_behind_a_sentinel_each_failure_counts(server: Server) -> None:
    # Such a renewal is sent again for ten seconds.
    with Proxy(server.port) as proxy, redis.Redis(port=proxy.port, retry=NO_RETRY) as client:
        client.connection_pool.sentinel_manager = None
        lock = Lock(client, "stock", timeout=30, linger=1)
        lock.acquire()
        with lock.keep_alive() as lease:
            proxy.close()
            until(lambda: not server.admin.exists("stock"), "the end of the hold")
            assert lease.lost.wait(2)


def test_a_slow_renewal_costs_no_short_linger(server: Server) -> None:
    with Proxy(server.port) as proxy, redis.Redis(port=proxy.port) as client:
        lock = Lock(client, "stock", timeout=30, linger=0.05)
        lock.acquire()
        with lock.keep_alive() as lease:
            proxy.delay = 0.2
            server.admin.config_resetstat()
            until(lambda: server.calls("lock.renew") >= 3, "renewals that take longer than the linger")
            assert not lease.lost.is_set()


def test_a_renewal_converts_nothing_back(server: Server, client: redis.Redis) -> None:
    pair = RWLock(client, "stock", timeout=30, linger=20)
    reader = pair.read()
    reader.acquire()
    assert pair.write().acquire(token=reader.local.token)
    reader.reacquire()
    assert server.mode("stock") == "exclusive"


def test_a_hold_that_is_lost_between_the_renewal_and_its_binding_is_not_taken_anew(server: Server) -> None:
    with Proxy(server.port) as proxy, redis.Redis(port=proxy.port) as client:
        lock = Lock(client, "stock", timeout=30, linger=20)
        lock.acquire()
        server.admin.delete("stock")
        proxy.answer(b"LOCK.RENEW", b":1", times=1)
        lock._held_before = unknown  # type: ignore[assignment, method-assign]
        with pytest.raises(LockNotOwnedError):
            lock.reacquire()
    assert not server.admin.exists("stock")


@pytest.mark.parametrize(
    ("reply", "is_lost"),
    [(b"$-1", False), (b"-ERR of another kind", False), (b"-PARTIAL release them first", True), (b"-WRONGTYPE", True)],
)
def test_what_the_binding_says_of_the_hold(server: Server, reply: bytes, is_lost: bool) -> None:
    with Proxy(server.port) as proxy, redis.Redis(port=proxy.port, protocol=2) as client:
        lock = MultiLock(client, BOTH, timeout=30, linger=20)
        lock.acquire()
        proxy.answer(b"LOCK.MACQUIRE", reply)
        with pytest.raises(LockNotOwnedError) if is_lost else contextlib.nullcontext():
            lock.reacquire()
        assert proxy.refusals == 1


async def cut(_: bytes) -> Held:
    raise redis.ConnectionError("cut")


def test_a_renewal_that_binds_nothing_counts_for_the_linger(client: redis.Redis) -> None:
    lock = Lock(client, "stock", timeout=30, linger=3)
    lock.acquire()
    lock._held_before = cut  # type: ignore[assignment, method-assign]
    lock.reacquire()
    assert lock.local.lease.left() < 3
    with lock.keep_alive():
        assert lock.local.lease.left() < 3
    del lock._held_before
    lock.reacquire()
    assert lock.local.lease.left() > 20


async def unknown(_: bytes) -> Held:
    return UNKNOWN


def test_it_must_not_be_negative(client: redis.Redis) -> None:
    with pytest.raises(ValueError, match="linger"):
        Lock(client, "stock", linger=-1)
