"""Waiting in the server's queue, by threads, over slices, lost connections and lost replies."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from redis_lock_client import Lock
from redis_lock_client import _protocol as protocol

from .proxy import Proxy
from .server import PATIENCE, Server
from .worker import KINDS, Package, Worker

NO_RETRY = Retry(NoBackoff(), 0)


def test_a_thread_sees_its_own_token_only_unless_asked_otherwise(client: redis.Redis) -> None:
    for thread_local in (True, False):
        lock = Lock(client, f"stock{thread_local}", timeout=30, thread_local=thread_local)
        lock.acquire()
        with ThreadPoolExecutor(1) as pool:
            owned, fence = pool.submit(lambda: (lock.owned(), lock.fence)).result()  # noqa: B023
        assert (owned, fence) == ((False, None) if thread_local else (True, lock.fence))


def test_without_socket_timeout_it_is_one_command(server: Server) -> None:
    with redis.Redis.from_url(server.url, socket_timeout=None) as patient, ThreadPoolExecutor(1) as pool:
        held = Lock(server.admin, "stock", timeout=30)
        held.acquire()
        waiting = pool.submit(Lock(patient, "stock", timeout=30).acquire)
        server.wait_for_waiters("stock", 1)
        held.release()
        assert waiting.result()
    assert server.calls("lock.acquire") == 2


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """What a client without socket timeout takes for silence is over soon."""
    for name in ("LATE", "DEFAULT_SOCKET_TIMEOUT"):
        monkeypatch.setattr(protocol, name, 0.3)
    return monkeypatch


@pytest.mark.parametrize("kind", KINDS)
def test_without_socket_timeout_a_wait_outlives_a_connection_that_falls_silent(
    server: Server, kind: str, patience: pytest.MonkeyPatch
) -> None:
    patience.setattr(protocol, "LONGEST_SLICE", 0.3)
    with Proxy(server.port) as proxy:
        held = Lock(server.admin, "stock", timeout=30)
        held.acquire()
        worker = Worker(kind, proxy.port, client={"socket_timeout": None})
        server.wait_for_waiters("stock", 1)
        proxy.silence()
        held.release()
        assert worker.result(PATIENCE)


@pytest.mark.usefixtures("patience")
@pytest.mark.parametrize("kind", KINDS)
def test_without_socket_timeout_a_wait_at_a_silent_server_ends(server: Server, kind: str) -> None:
    with Proxy(server.port) as proxy, Lock(server.admin, "stock", timeout=30):
        worker = Worker(kind, proxy.port, client={"socket_timeout": None}, blocking_timeout=1)
        server.wait_for_waiters("stock", 1)
        proxy.silence()
        proxy.pause()
        with pytest.raises(redis.TimeoutError):
            worker.result(PATIENCE / 2)


def test_a_server_that_is_gone_is_told(server: Server) -> None:
    with Proxy(server.port) as proxy, redis.Redis(port=proxy.port, retry=NO_RETRY) as client:
        client.ping()
        proxy.close()
        with pytest.raises(redis.ConnectionError):
            Lock(client, "stock", timeout=30).acquire()


@pytest.mark.parametrize("seconds", [0, 0.1])
def test_a_silent_server_is_not_asked_again_when_the_time_is_over(
    server: Server, package: Package, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    with Proxy(server.port) as proxy, package.client(port=proxy.port, socket_timeout=0.5) as client:
        package.now(client.ping())
        execute, asked = client.execute_command, []

        def ask(*args: Any, **options: Any) -> Any:
            asked.append(args[0])
            return execute(*args, **options)

        monkeypatch.setattr(client, "execute_command", ask)
        proxy.pause()
        with pytest.raises(redis.TimeoutError):
            package.now(package.lock(client, timeout=30, blocking_timeout=seconds).acquire())
        assert asked == ["LOCK.ACQUIRE"]


def test_a_no_that_comes_at_once_is_not_asked_for_again_without_a_pause(server: Server, package: Package) -> None:
    # As to a multi-lock with the token of a hold, while a guard lets nothing be granted.
    with Proxy(server.port) as proxy, package.client(port=proxy.port, protocol=2) as client:
        proxy.answer(b"LOCK.ACQUIRE", b"$-1")
        assert not package.now(package.lock(client, timeout=30, blocking_timeout=1).acquire())
        assert proxy.refusals <= 22
