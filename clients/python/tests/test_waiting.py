"""Waiting in the server's queue, by threads, over slices, lost connections and lost replies."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from redis_lock_client import Lock

from .proxy import Proxy
from .server import Server, running, until

NO_RETRY = Retry(NoBackoff(), 0)


def test_threads_exclude_each_other(client: redis.Redis) -> None:
    inside, most, total = 0, 0, 0

    def work(lock: Lock) -> None:
        nonlocal inside, most, total
        for _ in range(10):
            with lock:
                inside += 1
                most = max(most, inside)
                time.sleep(0.001)
                total += 1
                inside -= 1

    # One lock for all: the token is kept per thread.
    shared = Lock(client, "stock", timeout=30)
    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(work, shared) for _ in range(8)]:
            done.result()
    assert (most, total) == (1, 80)


def test_a_thread_sees_its_own_token_only_unless_asked_otherwise(client: redis.Redis) -> None:
    for thread_local in (True, False):
        lock = Lock(client, f"stock{thread_local}", timeout=30, thread_local=thread_local)
        lock.acquire()
        with ThreadPoolExecutor(1) as pool:
            owned, fence = pool.submit(lambda: (lock.owned(), lock.fence)).result()  # noqa: B023
        assert (owned, fence) == ((False, None) if thread_local else (True, lock.fence))


def test_waiting_goes_on_over_slices_below_the_socket_timeout(server: Server) -> None:
    with redis.Redis.from_url(server.url, socket_timeout=0.4, retry=NO_RETRY) as impatient:
        held, lock = Lock(server.admin, "stock", timeout=30), Lock(impatient, "stock", timeout=30)
        held.acquire()
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(lock.acquire)
            server.wait_for_waiters("stock", 1)
            connections = server.connections()
            until(lambda: server.calls("lock.acquire") >= 5, "several slices")
            assert not waiting.done()
            held.release()
            assert waiting.result()
        # A slice that outlives the socket timeout costs its connection.
        assert server.connections() == connections


def test_without_socket_timeout_it_is_one_command(server: Server) -> None:
    with redis.Redis.from_url(server.url, socket_timeout=None) as patient, ThreadPoolExecutor(1) as pool:
        held = Lock(server.admin, "stock", timeout=30)
        held.acquire()
        waiting = pool.submit(Lock(patient, "stock", timeout=30).acquire)
        server.wait_for_waiters("stock", 1)
        held.release()
        assert waiting.result()
    assert server.calls("lock.acquire") == 2


@pytest.mark.parametrize("blocking", [True, False])
def test_a_lost_reply_does_not_lose_the_lock(server: Server, blocking: bool) -> None:
    with Proxy(server.port) as proxy, redis.Redis(port=proxy.port, retry=NO_RETRY) as client:
        client.ping()
        proxy.lose_reply_to(b"LOCK.ACQUIRE")
        with Lock(client, "stock", timeout=30, blocking=blocking) as lock:
            assert proxy.lost == 1
            # Granted once: the second time it got its own fence.
            assert server.calls("lock.acquire") == 2
            assert lock.owned()


def test_a_server_that_is_gone_is_told(server: Server) -> None:
    with Proxy(server.port) as proxy, redis.Redis(port=proxy.port, retry=NO_RETRY) as client:
        client.ping()
        proxy.close()
        with pytest.raises(redis.ConnectionError):
            Lock(client, "stock", timeout=30).acquire()


def test_a_server_that_became_a_replica_is_asked_again(server: Server) -> None:
    with running(server.version) as old, redis.Redis.from_url(old.url) as client, ThreadPoolExecutor(1) as pool:
        assert Lock(client, "stock", timeout=30).acquire()
        waiting = pool.submit(Lock(client, "stock", timeout=30).acquire)
        old.wait_for_waiters("stock", 1)
        old.admin.replicaof("127.0.0.1", str(server.port))
        # The answer to the second time: with Sentinel the client now looks for the new primary.
        with pytest.raises(redis.exceptions.ReadOnlyError):
            waiting.result()


def test_waiters_that_have_the_whole_pool_do_not_keep_the_holder_from_releasing(server: Server, protocol: int) -> None:
    with (
        redis.Redis.from_url(server.url, max_connections=4, protocol=protocol) as client,
        ThreadPoolExecutor(4) as pool,
    ):

        def wait() -> bool:
            with Lock(client, "stock", timeout=30):
                return True

        held = Lock(client, "stock", timeout=30)
        held.acquire()
        waiting = [pool.submit(wait) for _ in range(4)]
        server.wait_for_waiters("stock", 4)
        with pytest.raises(redis.ConnectionError, match="Too many connections"):
            client.ping()
        held.reacquire()
        held.release()
        assert all(each.result() for each in waiting)
    assert server.connections() <= 7


def test_a_release_that_was_not_sent_can_be_repeated(server: Server) -> None:
    pool = redis.BlockingConnectionPool.from_url(server.url, max_connections=1, timeout=0.1)
    with redis.Redis(connection_pool=pool) as client:
        lock = Lock(client, "stock", timeout=30)
        lock.acquire()
        connection = pool.get_connection("_")
        with pytest.raises(redis.ConnectionError):
            lock.release()
        assert lock.fence
        pool.release(connection)
        lock.release()
        assert lock.fence is None
    assert not server.admin.exists("stock")
