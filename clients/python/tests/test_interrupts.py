"""A signal handler that raises in the middle of a command: its reply is not left for the next one."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
import redis

from redis_lock_client import Lock, LockNotOwnedError

from .proxy import Proxy
from .server import PATIENCE, Server, until

POOLS = [redis.ConnectionPool, redis.BlockingConnectionPool]


class SoftTimeLimitError(Exception):
    """An Exception, as Celery's SoftTimeLimitExceeded is."""


def interrupt_before_the_reply(client: Any, error: type[BaseException], when: Callable[[], Any] = lambda: None) -> None:
    """Raise as a signal handler does, after the next request is sent and before its reply is read."""
    parse_response = client.parse_response

    def interrupted(*_: Any, **__: Any) -> None:
        client.parse_response = parse_response
        when()
        raise error

    client.parse_response = interrupted


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("error", [KeyboardInterrupt, SoftTimeLimitError])
def test_the_reply_to_an_interrupted_command_is_not_taken_for_a_fence(
    server: Server, pool: Any, error: type[BaseException]
) -> None:
    with redis.Redis(connection_pool=pool(port=server.port)) as client:
        interrupt_before_the_reply(client, error)
        with pytest.raises(error):
            Lock(client, "first", timeout=30).acquire()
        with Lock(server.admin, "stock", timeout=30):
            assert not Lock(client, "stock", timeout=30).acquire(blocking=False)
        assert not server.admin.exists("first")


def test_an_interrupted_release_can_be_repeated(server: Server, client: redis.Redis) -> None:
    lock = Lock(client, "stock", timeout=30)
    lock.acquire()
    is_free = partial(until, lambda: not server.admin.exists("stock"), "the release")
    interrupt_before_the_reply(client, KeyboardInterrupt, is_free)
    with pytest.raises(KeyboardInterrupt):
        lock.release()
    # Its own reply would say that it has released something.
    with pytest.raises(LockNotOwnedError):
        lock.release()


def test_a_wait_that_never_times_out_is_given_up_at_once(server: Server) -> None:
    with redis.Redis(port=server.port, socket_timeout=None) as client:
        held = Lock(server.admin, "stock", timeout=30, thread_local=False)
        held.acquire()
        # So that a give-back behind the wait ends, too.
        backstop = threading.Timer(PATIENCE / 4, held.release)
        backstop.start()
        interrupt_before_the_reply(client, KeyboardInterrupt, lambda: server.wait_for_waiters("stock", 1))
        with pytest.raises(KeyboardInterrupt):
            Lock(client, "stock", timeout=30).acquire()
        backstop.cancel()
        assert held.owned()
        assert server.waiters("stock") == 0


@pytest.mark.parametrize("pool", POOLS)
def test_an_interrupt_closes_no_connection_of_another_thread(server: Server, pool: Any) -> None:
    with (
        redis.Redis(connection_pool=pool(port=server.port, socket_timeout=None)) as client,
        ThreadPoolExecutor(1) as threads,
    ):
        held = Lock(server.admin, "stock", timeout=30)
        held.acquire()
        waiting = threads.submit(Lock(client, "stock", timeout=30, grace=0).acquire)
        server.wait_for_waiters("stock", 1)
        interrupt_before_the_reply(client, KeyboardInterrupt)
        with pytest.raises(KeyboardInterrupt):
            Lock(client, "first", timeout=30).acquire()
        # Without grace its place would be gone with the connection.
        assert server.waiters("stock") == 1
        held.release()
        assert waiting.result(PATIENCE)


def test_an_interrupted_acquire_ends_at_a_silent_server(server: Server) -> None:
    with (
        ThreadPoolExecutor(1) as threads,
        Proxy(server.port) as proxy,
        redis.Redis(port=proxy.port, socket_timeout=None) as client,
    ):
        client.ping()
        interrupt_before_the_reply(client, SoftTimeLimitError, proxy.pause)
        with pytest.raises(SoftTimeLimitError):
            threads.submit(Lock(client, "stock", timeout=30).acquire).result(PATIENCE / 4)
