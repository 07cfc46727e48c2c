"""What users' programs met: subclasses, forks, greenlets, cancellations again and again, the ends of loops."""

import asyncio
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
import redis
import redis.asyncio
import redis.lock

from redis_lock_client import Lock
from redis_lock_client import asyncio as ours

from .server import PATIENCE, until

Client = redis.asyncio.Redis
HERE = Path(__file__).parent


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


def run(program, *args):
    command = [sys.executable, "-c", program, *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=HERE.parent)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_forked_child_does_not_hang(server):
    assert run(FORK, server.port) == "7\n"


def test_greenlets_with_a_pool_that_blocks(server):
    pytest.importorskip("gevent")
    assert run(GEVENT, server.port) == "10\n"


@pytest.mark.parametrize("wait", ["block", "notify"])
def test_a_program_that_ends_leaves_no_places_and_no_holds(server, wait):
    assert run(LOOP_END, server.port, wait) == "ended\n"
    assert [server.info(f"stock{number}") for number in range(3)] == [{}, {}, {}]


@pytest.mark.parametrize("wait", ["block", "notify"])
async def test_anyio_cancels_again_and_again_and_the_lock_is_free(server, proxy, wait):
    # What is on its way when the cancellation comes.
    proxy.delay = 0.05
    async with Client(port=proxy.port, max_connections=4) as client:
        with anyio.move_on_after(2) as scope:
            async with ours.Lock(client, "stock", timeout=60, wait=wait) as lock, lock.keep_alive():
                await anyio.sleep(PATIENCE)
        assert scope.cancelled_caught
        await asyncio.to_thread(until, lambda: not server.admin.exists("stock"), "the release")
        async with ours.Lock(client, "stock", timeout=60):
            with anyio.move_on_after(2):
                await ours.Lock(client, "stock", timeout=60, grace=50, wait=wait).acquire()
            await asyncio.to_thread(server.wait_for_waiters, "stock", 0)
