"""A signal handler that raises in the middle of a command: its reply is not left for the next one."""

import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest
import redis

from redis_lock_client import Lock

from .proxy import Proxy
from .server import PATIENCE, Server


class SoftTimeLimitError(Exception):
    """An Exception, as Celery's SoftTimeLimitExceeded is."""


def interrupted(error: type[BaseException], when: Callable[[], Any] = lambda: None) -> type[redis.Connection]:
    """A connection at which a signal handler raises once, after a lock's request and before its reply is read."""
    armed = [error]

    class Interrupted(redis.Connection):
        def send_packed_command(self, command: Any, check_health: bool = True) -> Any:
            super().send_packed_command(command, check_health)  # type: ignore[no-untyped-call]
            if b"LOCK." in b"".join(command) and armed:
                when()
                raise armed.pop()

    return Interrupted


def client_of(server_port: int, kind: Any, **settings: Any) -> redis.Redis:
    pool = redis.ConnectionPool(connection_class=kind, port=server_port, **settings)
    return redis.Redis(connection_pool=pool)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SoftTimeLimitError])
def test_the_reply_to_an_interrupted_command_is_not_taken_for_a_fence(
    server: Server, error: type[BaseException]
) -> None:
    with client_of(server.port, interrupted(error)) as client:
        with pytest.raises(error):
            Lock(client, "first", timeout=30).acquire()
        with Lock(server.admin, "stock", timeout=30):
            assert not Lock(client, "stock", timeout=30).acquire(blocking=False)
        assert not server.admin.exists("first")


def test_a_release_that_is_interrupted_keeps_its_token_and_can_be_repeated(server: Server) -> None:
    armed: list[type[BaseException]] = []

    class Interrupted(redis.Connection):
        def can_read(self, timeout: float = 0) -> bool:
            if armed:
                raise armed.pop()
            return super().can_read(timeout)

    with client_of(server.port, Interrupted) as client:
        lock = Lock(client, "stock", timeout=30, blocking=False)
        lock.acquire()
        token = lock.local.token
        # Before it is sent: nothing has ended the hold.
        armed.append(KeyboardInterrupt)
        with pytest.raises(KeyboardInterrupt):
            lock.release()
        assert lock.local.token == token
        assert server.admin.exists("stock")
        lock.release()
        assert lock.local.token is None
    assert not server.admin.exists("stock")


def test_a_wait_that_never_times_out_is_given_up_at_once(server: Server) -> None:
    held = Lock(server.admin, "stock", timeout=30, thread_local=False)
    held.acquire()
    # So that a give-back behind the wait ends, too.
    backstop = threading.Timer(PATIENCE / 4, held.release)
    backstop.start()
    kind = interrupted(KeyboardInterrupt, lambda: server.wait_for_waiters("stock", 1))
    with client_of(server.port, kind, socket_timeout=None) as client, pytest.raises(KeyboardInterrupt):
        Lock(client, "stock", timeout=30).acquire()
    backstop.cancel()
    assert held.owned()
    assert server.waiters("stock") == 0


def test_an_interrupted_acquire_ends_at_a_silent_server(server: Server) -> None:
    with Proxy(server.port) as proxy:
        kind = interrupted(SoftTimeLimitError, proxy.pause)
        with client_of(proxy.port, kind, socket_timeout=None) as client:
            ended = threading.Event()

            def acquire() -> None:
                with pytest.raises(SoftTimeLimitError):
                    Lock(client, "stock", timeout=30).acquire()
                ended.set()

            threading.Thread(target=acquire, daemon=True).start()
            assert ended.wait(PATIENCE)


def test_a_silent_server_is_left_when_the_time_is_over() -> None:
    """It accepts connections and says nothing: with a client at its defaults it took a minute."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        ended = threading.Event()

        def acquire() -> None:
            with pytest.raises(redis.RedisError):
                Lock(redis.Redis(port=silent.getsockname()[1]), "stock", timeout=30, blocking_timeout=2).acquire()
            ended.set()

        threading.Thread(target=acquire, daemon=True).start()
        assert ended.wait(PATIENCE)
