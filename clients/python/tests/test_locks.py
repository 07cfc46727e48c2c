"""What the package of threads and that of tasks have alike. What redis-py's own tests cover is left to them."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis
import redis.asyncio.sentinel
import redis.lock
import redis.sentinel

from redis_lock_client import Lock

from .package import LOCKS

LONGEST_MS = 2**48


@pytest.fixture(params=[(2, False), (2, True), (3, False), (3, True)], ids=str)
def any_client(request, server, package):
    protocol, decodes = request.param
    with package.client(server.port, protocol=protocol, decode_responses=decodes) as client:
        yield client


def test_a_client_can_do_all_in_either_protocol_and_decoding(server, package, any_client):
    now, lock = package.now, package.lock(any_client, timeout=10)
    assert (now(lock.locked()), lock.fence) == (False, None)
    # No UTF-8, so it could not be decoded.
    assert now(lock.acquire(token=b"\xff\x00"))
    assert lock.fence is not None
    assert now(lock.owned())
    assert now(lock.locked())
    assert now(lock.extend(10))
    assert 19_000 < server.admin.pttl("stock") <= 20_000
    assert now(lock.reacquire())
    assert server.admin.pttl("stock") <= 10_000
    now(lock.release())
    assert (now(lock.owned()), lock.fence) == (False, None)


def test_how_many_permits_are_free(server, package, any_client):
    now = package.now
    semaphore, narrower = (package.made("Semaphore", any_client, permits=number) for number in (3, 2))
    assert (now(semaphore.available()), now(semaphore.locked())) == (3, False)
    now(narrower.acquire())
    # The smallest number counts while its owner holds.
    assert now(semaphore.available()) == 1
    now(semaphore.acquire())
    assert (now(semaphore.available()), now(semaphore.locked())) == (0, True)
    now(narrower.release())
    now(semaphore.release())
    now(package.lock(any_client).acquire())
    assert now(semaphore.available()) == 0
    server.admin.set("stock", "of an old client")
    assert now(semaphore.available()) == 0


@pytest.mark.parametrize("blocking", [True, False])
@pytest.mark.parametrize("what", LOCKS)
def test_a_lost_reply_loses_no_lock_and_no_release(server, proxy, package, what, blocking):
    with package.client(proxy.port) as client:
        package.now(client.ping())
        proxy.lose_reply_to(LOCKS[what].upper().encode())
        lock = package.made(what, client, blocking=blocking)
        assert package.now(lock.acquire())
        # Granted once: the second time it got its own fence.
        assert (proxy.lost, server.calls(LOCKS[what])) == (1, 2)
        assert package.now(lock.owned())
        proxy.lose_reply_to(b"LOCK.RELEASE")
        package.now(lock.release())
        # The second time nothing was held.
        assert (proxy.lost, lock.fence) == (2, None)
    assert not server.admin.exists("stock", "prices")


def client_of_one(way, server, kind):
    """A client whose pool has one connection."""
    address = "127.0.0.1", server.port

    async def primary(_):
        return address

    if kind != "Sentinel":
        return way.redis.Redis(connection_pool=getattr(way.redis, kind)(port=server.port, max_connections=1))
    sentinel = way.redis.sentinel.Sentinel([])
    sentinel.discover_master = (lambda _: address) if way.is_sync else primary
    return sentinel.master_for("it", max_connections=1)


@pytest.mark.parametrize("kind", ["ConnectionPool", "BlockingConnectionPool", "Sentinel"])
def test_a_pool_that_others_use_up_stops_no_renewal_and_no_release(server, way, kind):
    with way.closing(client_of_one(way, server, kind)) as client:
        locks = [way.made("MultiLock", client, linger=20), way.lock(client, name="other")]
        for lock in locks:
            way.now(lock.acquire())
        connection = way.now(client.connection_pool.get_connection("_"))
        start = time.monotonic()
        for lock in locks:
            way.now(lock.reacquire())
            way.now(lock.release())
        if way.is_sync or way.options:
            # Nor what takes no connection of the pool.
            way.now(locks[0].acquire())
            way.now(locks[0].release())
        # A pool that waits does so for 20 s.
        assert time.monotonic() - start < 10
        way.now(client.connection_pool.release(connection))
    assert not server.admin.exists("stock", "prices", "other")


@pytest.mark.parametrize("is_cut", [False, True], ids=["its wait goes on", "its time is over"])
def test_without_socket_timeout_a_connection_that_falls_silent_holds_nobody_up(server, proxy, way, is_cut, monkeypatch):
    for name in ("acquire.LONGEST_SLICE", *(f"{part}.DEFAULT_TIMEOUT" for part in ("acquire", "driver", "listener"))):
        monkeypatch.setattr(f"redis_lock_client.{name}", 0.3)
    held = Lock(server.admin, "stock", timeout=30)
    held.acquire()
    with way.client(proxy.port, socket_timeout=None) as client:
        waiting = way.begin(way.lock(client).acquire, blocking_timeout=2 if is_cut else None)
        server.wait_for_waiters("stock", 1)
        proxy.silence()
        if is_cut:
            proxy.pause()
            with pytest.raises(redis.TimeoutError):
                waiting.result(10)
        else:
            held.release()
            assert waiting.result(20)


def test_a_no_that_comes_at_once_is_not_asked_for_again_without_a_pause(proxy, package):
    # As to a multi-lock with the token of a hold, while a guard lets nothing be granted.
    with package.client(proxy.port, protocol=2) as client:
        proxy.answer(b"LOCK.ACQUIRE", b"$-1")
        assert not package.now(package.lock(client, blocking_timeout=1).acquire())
        assert proxy.refusals <= 22


@pytest.mark.parametrize("what", ["Lock", "ReadLock", "Semaphore"])
def test_a_token_that_came_as_text_is_extended_by_what_is_left(server, package, what):
    with package.client(server.port) as client:
        permits = {"permits": 3} if what == "Semaphore" else {}
        lock, other = (package.made(what, client, timeout=60, **permits) for _ in range(2))
        package.now(lock.acquire(token="mine"))
        other.local.token = "mine"
        package.now(other.extend(10))
        assert 65_000 < server.admin.pttl("stock") <= 70_000
        other.local.token = "somebody else's"
        with pytest.raises(redis.exceptions.LockNotOwnedError):
            package.now(other.extend(10))
        # Not by a list of all the holders.
        assert server.calls("lock.info") <= (what != "Lock")
        assert package.now(lock.owned())


def test_extending_adds_to_what_is_left_of_this_hold(client):
    with Lock(client, "stock"):
        assert LONGEST_MS - 60_000 < client.pttl("stock") <= LONGEST_MS
    with Lock(client, "stock", timeout=10) as lock:
        client.pexpire("stock", 4000)
        lock.extend(10)
        assert 13_000 < client.pttl("stock") <= 14_000
        lock.extend(3, replace_ttl=True)
        assert client.pttl("stock") <= 3000
        # Never beyond what the module takes, and never for ever by mistake.
        lock.extend(LONGEST_MS)
        assert client.pttl("stock") <= LONGEST_MS
        lock.extend(0, replace_ttl=True)
        assert client.pttl("stock") <= 1
        lock.raise_on_release_error = False


def test_a_thread_sees_its_own_token_only_unless_asked_otherwise(client):
    for thread_local in (True, False):
        lock = Lock(client, f"stock{thread_local}", timeout=30, thread_local=thread_local)
        lock.acquire()
        with ThreadPoolExecutor(1) as pool:
            owned, fence = pool.submit(lambda: (lock.owned(), lock.fence)).result()  # noqa: B023
        assert (owned, fence) == ((False, None) if thread_local else (True, lock.fence))


def test_a_release_that_fails_does_not_take_the_lock_of_another_thread(server, client):
    """With `thread_local=False` it put the old token back over the new one."""
    lock = Lock(client, "stock", timeout=30, thread_local=False)
    lock.acquire()
    send = lock._driver.send

    def send_late(*args, **how):
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


def test_client_side_caching_tells_nothing_old(server):
    cache = pytest.importorskip("redis.cache")
    with redis.Redis(port=server.port, protocol=3, cache_config=cache.CacheConfig()) as client:
        lock = Lock(client, "stock", timeout=30)
        for _ in range(3):
            assert not lock.locked()
            with Lock(server.admin, "stock", timeout=30):
                assert lock.locked()
            with lock:
                assert lock.owned()
