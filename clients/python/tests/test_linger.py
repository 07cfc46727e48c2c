"""`linger`: a hold that ends soon after its connection is lost, and not otherwise."""

import time
from typing import Any

import pytest
import redis

from redis_lock_client import Lock, LockNotOwnedError, RWLock
from redis_lock_client._protocol import UNKNOWN, Held

from .proxy import Proxy
from .server import Server, until
from .worker import BOTH, Package

LINGER = 0.6
OPTIONS: dict[str, dict[str, Any]] = {
    "Lock": {},
    "ReadLock": {},
    "Semaphore": {"permits": 3},
    "MultiLock": {"shared": ["read"]},
}


@pytest.mark.parametrize("what", OPTIONS)
@pytest.mark.parametrize("wait", ["block", "notify"])
def test_a_renewal_binds_it_to_the_next_connection(server: Server, package: Package, what: str, wait: str) -> None:
    if wait == "notify" and package.is_sync:
        pytest.skip("asyncio only")
    options = OPTIONS[what] | ({} if package.is_sync else {"wait": wait})
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


def test_keep_alive_binds_it_to_the_next_connection(server: Server) -> None:
    with redis.Redis(port=server.port) as client:
        lock = Lock(client, "stock", timeout=30, linger=LINGER)
        lock.acquire()
        server.admin.execute_command("CLIENT", "KILL", "SKIPME", "yes")
        with lock.keep_alive():
            time.sleep(2 * LINGER)
            assert lock.check() == lock.fence
    until(lambda: not server.admin.exists("stock"), "the end of the hold")


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


async def unknown(_: bytes) -> Held:
    return UNKNOWN


def test_it_must_not_be_negative(client: redis.Redis) -> None:
    with pytest.raises(ValueError, match="linger"):
        Lock(client, "stock", linger=-1)
