"""Waiting in the server's queue, by threads, over slices, lost connections and lost replies."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from redis_lock_client import Lock
from redis_lock_client import acquire as protocol

from .proxy import Proxy
from .server import PATIENCE, Server
from .worker import KINDS, Package, Worker, at

NO_RETRY = Retry(NoBackoff(), 0)


def test_a_thread_sees_its_own_token_only_unless_asked_otherwise(client: redis.Redis) -> None:
    for thread_local in (True, False):
        lock = Lock(client, f"stock{thread_local}", timeout=30, thread_local=thread_local)
        lock.acquire()
        with ThreadPoolExecutor(1) as pool:
            owned, fence = pool.submit(lambda: (lock.owned(), lock.fence)).result()  # noqa: B023
        assert (owned, fence) == ((False, None) if thread_local else (True, lock.fence))


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """What a client without socket timeout takes for silence is over soon."""
    monkeypatch.setattr(protocol, "LATE", 0.3)
    for module in ("driver", "listener"):
        monkeypatch.setattr(f"redis_lock_client.{module}.DEFAULT_TIMEOUT", 0.3)
    return monkeypatch


@pytest.mark.parametrize("kind", KINDS)
def test_without_socket_timeout_a_wait_outlives_a_connection_that_falls_silent(
    server: Server, kind: str, patience: pytest.MonkeyPatch
) -> None:
    patience.setattr(protocol, "LONGEST_SLICE", 0.3)
    with Proxy(server.port) as proxy:
        held = Lock(server.admin, "stock", timeout=30)
        held.acquire()
        worker = Worker(kind, at(proxy.port, socket_timeout=None))
        server.wait_for_waiters("stock", 1)
        proxy.silence()
        held.release()
        assert worker.result(PATIENCE)


@pytest.mark.usefixtures("patience")
@pytest.mark.parametrize("kind", KINDS)
def test_without_socket_timeout_a_wait_at_a_silent_server_ends(server: Server, kind: str) -> None:
    with Proxy(server.port) as proxy, Lock(server.admin, "stock", timeout=30):
        worker = Worker(kind, at(proxy.port, socket_timeout=None), blocking_timeout=1)
        server.wait_for_waiters("stock", 1)
        proxy.silence()
        proxy.pause()
        with pytest.raises(redis.TimeoutError):
            worker.result(PATIENCE / 2)


def test_a_no_that_comes_at_once_is_not_asked_for_again_without_a_pause(server: Server, package: Package) -> None:
    # As to a multi-lock with the token of a hold, while a guard lets nothing be granted.
    with Proxy(server.port) as proxy, package.client(port=proxy.port, protocol=2) as client:
        proxy.answer(b"LOCK.ACQUIRE", b"$-1")
        assert not package.now(package.lock(client, timeout=30, blocking_timeout=1).acquire())
        assert proxy.refusals <= 22
