"""What users' programs met: faults in a wait, signals, cancellations, forks, greenlets, the ends of loops."""

import asyncio
import contextlib
import socket
import subprocess
import sys
from importlib.util import find_spec
from typing import Any

import pytest
import redis
import redis.asyncio
import redis.lock

from redis_lock_client import Lock, RWLock
from redis_lock_client import asyncio as ours

from .package import BOTH, LOCKS, Package
from .server import PATIENCE, until

# Longer than any test: a place that is gone was given up.
LONG_GRACE = 50


@pytest.mark.parametrize("what", ["Lock", "MultiLock"])
@pytest.mark.parametrize("fault", ["silence", "delay"])
def test_a_fault_during_a_slice_does_not_cost_the_place(server, proxy, way, client, what, fault):
    held = Lock(server.admin, "stock", timeout=30)
    held.acquire()
    with way.client(proxy.port, socket_timeout=1.0) as waiting_client, Package("threads") as threads:
        first = way.made(what, waiting_client)
        waiting = way.begin(first.acquire)
        server.wait_for_waiters("stock", 1)
        # Of several, the one for the other key, which is free but for the place.
        other = "prices" if what == "MultiLock" else "stock"
        later = threads.begin(threads.lock(client, name=other).acquire)
        server.wait_for_waiters(other, 2)
        if fault == "delay":
            # A slice and the way there and back are more than the socket timeout: the reply comes too late.
            calls, proxy.delay = server.calls(LOCKS[what]), 0.2
            if not way.options:
                until(lambda: server.calls(LOCKS[what]) >= calls + 3, "slices whose replies came too late")
        else:
            proxy.silence()
        held.release()
        assert waiting.result(20)
        assert not later.done()
        way.now(first.release())
        assert later.result(20)


@pytest.mark.parametrize("what", LOCKS)
def test_an_interrupted_wait_leaves_no_place(server, way, what):
    with Lock(server.admin, "stock", timeout=30), way.client(server.port, socket_timeout=None) as client:
        way.interrupt(way.made(what, client, grace=LONG_GRACE).acquire, lambda: len(server.waiters("stock")) == 1)
        assert [server.waiters(name) for name in BOTH] == [[], []]
    assert not server.admin.exists(*BOTH)


def test_an_upgrade_that_gives_up_leaves_the_share_and_no_place(server, client, way):
    page = RWLock(client, "page", timeout=30)
    with page.read() as one, page.read(), way.client(server.port) as upgrading:
        writer = way.made("WriteLock", upgrading, name="page", grace=LONG_GRACE)
        assert not way.now(writer.acquire(blocking_timeout=0.2, token=one.local.token))
        assert not server.waiters("page")
        way.interrupt(writer.acquire, lambda: len(server.waiters("page")) == 1, token=one.local.token)
        assert not server.waiters("page")
        assert server.mode("page") == "shared"
        assert one.owned()
        # To ask for the share again would set its ttl, and end its linger.
        assert server.calls("rwlock.rlock") == 2
        # An absent writer would keep it out.
        assert page.read().acquire(blocking=False)


@pytest.mark.parametrize(("is_granted", "token"), [(False, None), (True, None), (True, "mine")])
def test_an_interrupted_acquire_ends_at_a_silent_server(server, proxy, way, is_granted, token):
    def falls_silent():
        if not is_granted:
            return proxy.held
        if is_there := server.admin.exists("stock"):
            proxy.pause()
        return is_there

    with way.client(proxy.port, socket_timeout=None) as client:
        way.now(client.ping())
        if is_granted:
            proxy.lose_reply_to(b"LOCK.ACQUIRE", cuts=False)
        else:
            proxy.pause()
        way.interrupt(way.lock(client).acquire, falls_silent, token=token)
        assert server.admin.exists("stock") == is_granted
        proxy.resume()
        # By a token that was passed its owner may acquire again at once: a late release would end that hold.
        if token is None:
            until(lambda: server.calls("lock.release"), "the release")
            until(lambda: not server.admin.exists("stock"), "its end")


async def test_a_cancellation_counts_at_whatever_moment(server):
    async with redis.asyncio.Redis.from_url(server.url, socket_timeout=0.4) as client:
        await client.ping()
        async with ours.Lock(client, "stock", timeout=30):
            for steps in range(40):
                task = asyncio.create_task(ours.Lock(client, "stock", timeout=30).acquire())
                for _ in range(steps):
                    await asyncio.sleep(0)
                task.cancel()
                # Waits for ever if the cancellation was swallowed.
                await asyncio.wait([task], timeout=PATIENCE)
                assert task.cancelled(), f"swallowed after {steps} steps"
        assert not await client.exists("stock")


class SoftTimeLimitError(Exception):
    """An Exception, as Celery's SoftTimeLimitExceeded is."""


class Interrupted(redis.Connection):
    """A connection at which a signal handler raises once, before a request or before its reply is read."""

    before_the_request: list[Any] = []
    before_the_reply: list[Any] = []

    def can_read(self, timeout=0):
        raise_from(self.before_the_request)
        return super().can_read(timeout)

    def send_packed_command(self, command, check_health=True):
        super().send_packed_command(command, check_health)
        if b"LOCK." in b"".join(command):
            raise_from(self.before_the_reply)


def raise_from(armed):
    if armed:
        raise armed.pop()


@pytest.fixture
def interrupted(server):
    pool = redis.ConnectionPool(connection_class=Interrupted, port=server.port, socket_timeout=None)
    with redis.Redis(connection_pool=pool) as client:
        yield client


@pytest.mark.parametrize("error", [KeyboardInterrupt, SoftTimeLimitError])
def test_the_reply_to_an_interrupted_command_is_not_taken_for_a_fence(server, interrupted, error):
    Interrupted.before_the_reply.append(error)
    with pytest.raises(error):
        Lock(interrupted, "first", timeout=30).acquire()
    with Lock(server.admin, "stock", timeout=30):
        assert not Lock(interrupted, "stock", timeout=30).acquire(blocking=False)
    assert not server.admin.exists("first")


def test_a_release_that_is_interrupted_keeps_its_token_and_can_be_repeated(server, interrupted):
    lock = Lock(interrupted, "stock", timeout=30, blocking=False)
    lock.acquire()
    token = lock.local.token
    # Before it is sent: nothing has ended the hold.
    Interrupted.before_the_request.append(KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        lock.release()
    assert lock.local.token == token
    assert server.admin.exists("stock")
    lock.release()
    assert lock.local.token is None
    # Nobody repeats that of a context.
    with pytest.raises(KeyboardInterrupt), lock:
        Interrupted.before_the_request.append(KeyboardInterrupt)
    assert not server.admin.exists("stock")


@pytest.mark.parametrize("options", [{}, {"linger": 5}])
def test_a_silent_server_is_left_when_the_time_is_over(options):
    """It accepts connections and says nothing: with a client at its defaults it took a minute."""
    with socket.create_server(("127.0.0.1", 0)) as silent, Package("threads") as threads:
        lock = Lock(redis.Redis(port=silent.getsockname()[1]), "stock", timeout=30, blocking_timeout=2, **options)
        with pytest.raises(redis.RedisError):
            threads.begin(lock.acquire).result(PATIENCE)


class LatePool(redis.asyncio.BlockingConnectionPool):
    """It swallows a cancellation, as asyncio.wait_for does before Python 3.12, and returns its connection late."""

    async def get_connection(self, *args, **options):
        connection = await super().get_connection(*args, **options)
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(PATIENCE)
        return connection


async def test_a_pool_that_is_late_or_empty_neither_loses_a_connection_nor_lasts_beyond_the_wait(server):
    pool = LatePool(port=server.port, max_connections=1, timeout=PATIENCE, socket_timeout=0.4)
    async with redis.asyncio.Redis(connection_pool=pool) as client:
        lock = ours.Lock(client, "stock", timeout=30)
        assert await lock.acquire(blocking_timeout=0.2)
        await lock.release()
        connection = await asyncio.wait_for(redis.asyncio.BlockingConnectionPool.get_connection(pool, "_"), 1)
        with pytest.raises(redis.TimeoutError):
            await asyncio.wait_for(lock.acquire(blocking_timeout=0.2), PATIENCE / 2)
        await pool.release(connection)


class JobLock(Lock):
    """Of an application: with other arguments."""

    def __init__(self, client, job, retries=3):
        super().__init__(client, f"job:{job}", timeout=30)
        self.retries = retries


def test_a_lock_can_be_subclassed_as_that_of_the_library(server, client):
    with JobLock(client, 7, retries=5) as lock:
        assert (lock.retries, type(lock)) == (5, JobLock)
        assert isinstance(lock, redis.lock.Lock)
        assert server.admin.exists("job:7")
    assert isinstance(client.lock("a", lock_class=Lock), Lock)


def test_a_client_of_the_wrong_kind_is_refused_at_construction():
    with pytest.raises(TypeError, match=r"its locks are in redis_lock_client\.asyncio$"):
        Lock(redis.asyncio.Redis(), "stock")
    with pytest.raises(TypeError, match=r"its locks are in redis_lock_client$"):
        ours.RWLock(redis.Redis(), "stock")
    with pytest.raises(TypeError, match=r"redis_lock_client\.asyncio$"):
        Lock(redis.asyncio.RedisCluster(host="127.0.0.1"), "stock")
    with pytest.raises(ValueError, match="wait"):
        Lock(redis.Redis(), "stock", wait="notify")


FORK = """
import os, sys, threading, time, redis
from redis_lock_client import Lock
client = redis.Redis(port=int(sys.argv[1]))
lock = Lock(client, "stock", timeout=30, linger=20, at_least=0, thread_local=False)
lock.acquire()
with lock.keep_alive():
    # As if a renewal were under way in the keeper's thread.
    lock.local.lease.renewing.lock.acquire()
    pid = os.fork()
    if pid == 0:
        lock.release()
        own = Lock(client, "own", timeout=3)
        with own, own.keep_alive() as lease:
            time.sleep(2)
            assert not lease.lost.is_set() and own.check() == own.fence
        os._exit(7)
    lock.local.lease.renewing.lock.release()
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
        await asyncio.sleep(0.1)
async def main():
    client = redis.asyncio.Redis(port=int(sys.argv[1]))
    # The program ends with most of them waiting, and some that hold.
    await asyncio.wait_for(asyncio.gather(*(work(client, number) for number in range(20))), 0.3)
try:
    asyncio.run(main())
except TimeoutError:
    print("ended")
"""


@pytest.mark.parametrize(
    ("words", "told"),
    [
        pytest.param([FORK], "7\n", id="a forked child"),
        pytest.param([GEVENT], "10\n", id="greenlets", marks=pytest.mark.skipif(not find_spec("gevent"), reason="")),
        pytest.param([LOOP_END, "block"], "ended\n", id="the end of a loop"),
        pytest.param([LOOP_END, "notify"], "ended\n", id="the end of a loop that is notified"),
    ],
)
def test_a_program_does_not_hang_and_leaves_no_places_and_no_holds(server, words, told):
    program, *more = words
    # The tests choose the library.
    command = [sys.executable, "-c", f"import tests\n{program}", str(server.port), *more]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.stdout == told, done.stderr
    assert [server.info(f"stock{number}") for number in range(3)] == [{}, {}, {}]


@pytest.mark.parametrize("wait", ["block", "notify"])
async def test_anyio_cancels_again_and_again_and_the_lock_is_free(server, proxy, wait):
    anyio = pytest.importorskip("anyio")
    # What is on its way when the cancellation comes.
    proxy.delay = 0.05
    async with redis.asyncio.Redis(port=proxy.port, max_connections=4) as client:
        with anyio.move_on_after(2) as scope:
            async with ours.Lock(client, "stock", timeout=60, wait=wait) as lock, lock.keep_alive():
                await anyio.sleep(PATIENCE)
        assert scope.cancelled_caught
        await asyncio.to_thread(until, lambda: not server.admin.exists("stock"), "the release")
        async with ours.Lock(client, "stock", timeout=60):
            with anyio.move_on_after(2):
                await ours.Lock(client, "stock", timeout=60, grace=50, wait=wait).acquire()
            await asyncio.to_thread(server.wait_for_waiters, "stock", 0)
