"""What users' programs met: pools, threads, forks, cancellations, the ends of loops."""

import asyncio
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import anyio
import pytest
import redis
import redis.asyncio
import redis.lock

import redis_lock_client
from redis_lock_client import Lock, LockNotOwnedError, MultiLock, Semaphore
from redis_lock_client import asyncio as ours

from .proxy import Proxy
from .server import PATIENCE, Server, until
from .worker import Package

Client = redis.asyncio.Redis
HERE = Path(__file__).parent


class JobLock(Lock):
    """Of an application: with other arguments."""

    def __init__(self, client: Any, job: int, retries: int = 3) -> None:
        super().__init__(client, f"job:{job}", timeout=30)
        self.retries = retries


def test_a_lock_can_be_subclassed_as_that_of_the_library(server: Server, client: redis.Redis) -> None:
    with JobLock(client, 7, retries=5) as lock:
        assert (lock.retries, type(lock)) == (5, JobLock)
        assert isinstance(lock, redis.lock.Lock)
        assert server.admin.exists("job:7")
    assert type(Lock(client, "a")) is Lock
    assert isinstance(client.lock("a", lock_class=Lock), redis.lock.Lock)
    for cls in (Lock, Semaphore, MultiLock):
        assert getattr(redis_lock_client, cls.__name__) is cls


def test_a_client_of_the_wrong_kind_is_refused_at_construction() -> None:
    with pytest.raises(TypeError, match=r"its locks are in redis_lock_client\.asyncio$"):
        Lock(redis.asyncio.Redis(), "stock")
    with pytest.raises(TypeError, match=r"its locks are in redis_lock_client$"):
        ours.RWLock(redis.Redis(), "stock")
    with pytest.raises(TypeError, match=r"redis_lock_client\.asyncio$"):
        Lock(redis.asyncio.RedisCluster(host="127.0.0.1"), "stock")
    with pytest.raises(ValueError, match="wait"):
        Lock(redis.Redis(), "stock", wait="notify")


@pytest.mark.parametrize("what", ["Lock", "ReadLock", "Semaphore"])
def test_a_token_that_came_as_text_is_extended_by_what_is_left(server: Server, package: Package, what: str) -> None:
    with package.client(port=server.port) as client:
        permits = {"permits": 3} if what == "Semaphore" else {}
        lock = package.made(what, client, timeout=60, **permits)
        package.now(lock.acquire(token="mine"))
        other = package.made(what, client, timeout=60, **permits)
        other.local.token = "mine"
        package.now(other.extend(10))
        assert 65_000 < server.admin.pttl("stock") <= 70_000
        other.local.token = "somebody else's"
        with pytest.raises(LockNotOwnedError):
            package.now(other.extend(10))
        # Not by a list of all the holders.
        assert server.calls("lock.info") <= (what != "Lock")
        assert package.now(lock.owned())


def test_a_release_that_fails_does_not_take_the_lock_of_another_thread(server: Server) -> None:
    """With `thread_local=False` it put the old token back over the new one."""
    with Proxy(server.port) as proxy, redis.Redis(port=proxy.port) as client:
        lock = Lock(client, "stock", timeout=30, thread_local=False)
        lock.acquire()
        send = lock._driver.send

        def send_late(*args: Any, **how: Any) -> Any:
            lock._driver.send = send
            # Meanwhile the lock has ended, and another thread takes it by the same object.
            server.admin.delete("stock")
            assert lock.acquire(token="new")
            raise redis.ConnectionError("lost")

        lock._driver.send = send_late
        # The second try finds nothing, as the first may have been done: that is no error.
        lock.release()
        assert lock.local.token == b"new"
        assert lock.owned()


@pytest.mark.parametrize("kind", ["ConnectionPool", "BlockingConnectionPool"])
def test_a_pool_that_others_use_up_stops_no_renewal_and_no_release(server: Server, package: Package, kind: str) -> None:
    full = getattr(package.redis, kind)(port=server.port, max_connections=1)
    with package.closing(package.redis.Redis(connection_pool=full)) as client:
        locks = [package.made("MultiLock", client, linger=20), package.lock(client, name="other")]
        for lock in locks:
            package.now(lock.acquire())
        connection = package.now(full.get_connection("_"))
        start = time.monotonic()
        for lock in locks:
            package.now(lock.reacquire())
            package.now(lock.release())
        if package.is_sync:
            with package.lock(client, name="third"):
                pass
        # A pool that waits does so for 20 s.
        assert time.monotonic() - start < 10
        package.now(full.release(connection))
        package.now(full.disconnect())
    assert not server.admin.exists("stock", "prices", "other")


def test_client_side_caching_tells_nothing_old(server: Server) -> None:
    cache = pytest.importorskip("redis.cache")
    with redis.Redis(port=server.port, protocol=3, cache_config=cache.CacheConfig()) as client:
        lock = Lock(client, "stock", timeout=30)
        for _ in range(3):
            assert not lock.locked()
            with Lock(server.admin, "stock", timeout=30):
                assert lock.locked()
            with lock:
                assert lock.owned()


FORK = """
import os, sys, threading, time, redis
from redis_lock_client import Lock
client = redis.Redis(port=int(sys.argv[1]))
lock = Lock(client, "stock", timeout=30, linger=20, at_least=0, thread_local=False)
lock.acquire()
with lock.keep_alive():
    # As if a renewal were under way in the keeper's thread.
    lock.local.lease.renewing.acquire()
    pid = os.fork()
    if pid == 0:
        lock.release()
        own = Lock(client, "own", timeout=3)
        with own, own.keep_alive() as lease:
            time.sleep(2)
            assert not lease.lost.is_set() and own.check() == own.fence
        os._exit(7)
    lock.local.lease.renewing.release()
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""

GEVENT = """
from gevent import monkey; monkey.patch_all()
import sys, gevent, redis
from redis_lock_client import Lock
pool = redis.BlockingConnectionPool(port=int(sys.argv[1]), max_connections=1, timeout=5)
client = redis.Redis(connection_pool=pool)
order = []
def work(number):
    with Lock(client, "stock", timeout=3) as lock, lock.keep_alive() as lease:
        order.append(number)
        client.ping()
        gevent.sleep(0.4)
        assert not lease.lost.is_set() and lock.check() == lock.fence
gevent.joinall([gevent.spawn(work, number) for number in range(10)], raise_error=True)
print(len(order))
"""

LOOP_END = """
import asyncio, sys, redis.asyncio
from redis_lock_client.asyncio import Lock
async def work(client, number):
    async with Lock(client, f"stock{number % 3}", timeout=60, grace=50, wait=sys.argv[2]):
        await asyncio.sleep(0.02)
async def main():
    client = redis.asyncio.Redis(port=int(sys.argv[1]))
    # The program ends with most of them waiting, and some that hold.
    await asyncio.wait_for(asyncio.gather(*(work(client, number) for number in range(60))), 0.3)
try:
    asyncio.run(main())
except TimeoutError:
    print("ended")
"""


def run(program: str, *args: Any) -> str:
    command = [sys.executable, "-c", program, *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=HERE.parent)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_forked_child_does_not_hang(server: Server) -> None:
    assert run(FORK, server.port) == "7\n"


def test_greenlets_with_a_pool_that_blocks(server: Server) -> None:
    pytest.importorskip("gevent")
    assert run(GEVENT, server.port) == "10\n"


@pytest.mark.parametrize("wait", ["block", "notify"])
def test_a_program_that_ends_leaves_no_places_and_no_holds(server: Server, wait: str) -> None:
    assert run(LOOP_END, server.port, wait) == "ended\n"
    assert [server.info(f"stock{number}") for number in range(3)] == [{}, {}, {}]


@pytest.mark.parametrize("wait", ["block", "notify"])
async def test_anyio_cancels_again_and_again_and_the_lock_is_free(server: Server, wait: Any) -> None:
    with Proxy(server.port) as proxy:
        # What is on its way when the cancellation comes.
        proxy.delay = 0.05
        await cancelled_again_and_again(server, Client(port=proxy.port, max_connections=4), wait)


async def cancelled_again_and_again(server: Server, client: Client, wait: Any) -> None:
    async with client:
        with anyio.move_on_after(2) as scope:
            async with ours.Lock(client, "stock", timeout=60, wait=wait) as lock, lock.keep_alive():
                await anyio.sleep(PATIENCE)
        assert scope.cancelled_caught
        await asyncio.to_thread(until, lambda: not server.admin.exists("stock"), "the release")
        async with ours.Lock(client, "stock", timeout=60):
            with anyio.move_on_after(2):
                await ours.Lock(client, "stock", timeout=60, grace=50, wait=wait).acquire()
            await asyncio.to_thread(server.wait_for_waiters, "stock", 0)


async def test_a_closed_client_keeps_no_connection(server: Server) -> None:
    client = Client(port=server.port, client_name="ours")
    async with client, ours.Lock(client, "stock", timeout=30, wait="notify"):
        pass

    def ours_left() -> list[Any]:
        return [each for each in server.admin.client_list() if each["name"] == "ours"]

    await asyncio.to_thread(until, lambda: not ours_left(), "the end of the subscription")


def test_a_release_whose_reply_was_lost_is_done(server: Server, package: Package) -> None:
    with Proxy(server.port) as proxy, package.client(port=proxy.port) as client:
        lock = package.lock(client)
        package.now(lock.acquire())
        proxy.lose_reply_to(b"LOCK.RELEASE")
        package.now(lock.release())
        assert (proxy.lost, server.calls("lock.release"), lock.fence) == (1, 2, None)
    assert not server.admin.exists("stock")
