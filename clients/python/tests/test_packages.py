"""What the package of threads and that of tasks have alike: each test is for both."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis
import redis.asyncio.lock
import redis.asyncio.sentinel
import redis.lock
import redis.sentinel

from redis_lock_client import _protocol

from .proxy import Proxy
from .server import PATIENCE, Server, running, until
from .worker import KINDS, LOCKS, Package, Worker


def test_it_is_a_lock_of_the_library_and_the_client_makes_it(server: Server, package: Package) -> None:
    with package.client(port=server.port) as client:
        lock = client.lock("stock", timeout=10, lock_class=package.locks.Lock)
        assert isinstance(lock, package.locks.Lock)
        assert isinstance(lock, package.redis.lock.Lock)
        assert package.now(lock.acquire())
        assert server.admin.type("stock") == "redislock"


def test_a_client_can_do_all_in_either_protocol_and_decoding(server: Server, package: Package, protocol: int) -> None:
    now = package.now

    def pttl() -> int:
        left: int = server.admin.pttl("stock")
        return left

    for decode in (False, True):
        with package.client(port=server.port, protocol=protocol, decode_responses=decode) as client:
            lock = package.lock(client, timeout=10)
            assert (now(lock.locked()), lock.fence) == (False, None)
            # No UTF-8, so it could not be decoded.
            assert now(lock.acquire(token=b"\xff\x00"))
            assert lock.fence is not None
            assert now(lock.owned())
            assert now(lock.locked())
            assert now(lock.extend(10))
            assert 19_000 < pttl() <= 20_000
            assert now(lock.reacquire())
            assert pttl() <= 10_000
            now(lock.release())
            assert (now(lock.owned()), lock.fence) == (False, None)


def test_how_many_permits_are_free(server: Server, package: Package, protocol: int) -> None:
    now = package.now
    for decode in (False, True):
        with package.client(port=server.port, protocol=protocol, decode_responses=decode) as client:
            semaphore, narrower = (package.made("Semaphore", client, permits=number) for number in (3, 2))
            assert (now(semaphore.available()), now(semaphore.locked())) == (3, False)
            now(narrower.acquire())
            # The smallest number counts while its owner holds.
            assert now(semaphore.available()) == 1
            now(semaphore.acquire())
            assert (now(semaphore.available()), now(semaphore.locked())) == (0, True)
            now(narrower.release())
            now(semaphore.release())
            alone = package.lock(client)
            now(alone.acquire())
            assert now(semaphore.available()) == 0
            now(alone.release())
            server.admin.set("stock", "of an old client")
            assert now(semaphore.available()) == 0
            server.admin.delete("stock")


def test_waiting_goes_on_over_slices_below_the_socket_timeout(server: Server, package: Package) -> None:
    with package.client(port=server.port, socket_timeout=0.4) as impatient, ThreadPoolExecutor(1) as pool:
        held, lock = package.lock(impatient), package.lock(impatient)
        package.now(held.acquire())
        waiting = pool.submit(lambda: package.now(lock.acquire()))
        server.wait_for_waiters("stock", 1)
        connections = server.connections()
        until(lambda: server.calls("lock.acquire") >= 5, "several slices")
        assert not waiting.done()
        # A slice that outlives the socket timeout costs its connection.
        assert server.connections() == connections
        package.now(held.release())
        assert waiting.result()


@pytest.mark.parametrize("blocking", [True, False])
@pytest.mark.parametrize("what", LOCKS)
def test_a_lost_reply_does_not_lose_the_lock(server: Server, package: Package, what: str, blocking: bool) -> None:
    with Proxy(server.port) as proxy, package.client(port=proxy.port) as client:
        package.now(client.ping())
        proxy.lose_reply_to(LOCKS[what].upper().encode())
        lock = package.made(what, client, blocking=blocking)
        assert package.now(lock.acquire())
        # Granted once: the second time it got its own fence.
        assert (proxy.lost, server.calls(LOCKS[what])) == (1, 2)
        assert package.now(lock.owned())
        package.now(lock.release())
    assert not server.admin.exists("stock")


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_that_became_a_replica_is_asked_again(server: Server, kind: str) -> None:
    with running(server.version) as old:
        old.admin.execute_command("LOCK.ACQUIRE", "stock", "holder", 30_000)
        waiting = Worker(kind, old.port)
        old.wait_for_waiters("stock", 1)
        old.admin.replicaof("127.0.0.1", str(server.port))
        # The answer to the second time: with Sentinel the client now looks for the new primary.
        with pytest.raises(redis.exceptions.ReadOnlyError):
            waiting.result()


def test_waiters_that_have_the_whole_pool_do_not_keep_the_holder_from_releasing(
    server: Server, package: Package, protocol: int
) -> None:
    with package.client(port=server.port, max_connections=4, protocol=protocol) as client:

        def wait() -> bool:
            lock = package.lock(client)
            granted: bool = package.now(lock.acquire())
            package.now(lock.release())
            return granted

        held = package.lock(client)
        package.now(held.acquire())
        with ThreadPoolExecutor(4) as pool:
            waiting = [pool.submit(wait) for _ in range(4)]
            server.wait_for_waiters("stock", 4)
            with pytest.raises(redis.ConnectionError, match="Too many connections"):
                package.now(client.ping())
            package.now(held.reacquire())
            package.now(held.release())
            assert all(each.result() for each in waiting)
    assert server.connections() <= 7


@pytest.mark.parametrize("pool", ["ConnectionPool", "BlockingConnectionPool"])
def test_several_locks_are_released_beside_a_full_pool(server: Server, package: Package, pool: str) -> None:
    full = getattr(package.redis, pool)(port=server.port, max_connections=1)
    with package.closing(package.redis.Redis(connection_pool=full)) as client:
        lock = package.made("MultiLock", client, linger=20)
        package.now(lock.acquire())
        connection = package.now(full.get_connection("_"))
        start = time.monotonic()
        package.now(lock.reacquire())
        package.now(lock.release())
        # A pool that waits does so for 20 s.
        assert time.monotonic() - start < 10
        package.now(full.release(connection))
        package.now(full.disconnect())
    assert not server.admin.exists("stock", "prices")


def test_a_release_beside_a_full_pool_asks_the_sentinel_where_to(server: Server, package: Package) -> None:
    address = "127.0.0.1", server.port

    async def primary(_: str) -> tuple[str, int]:
        return address

    sentinel = package.redis.sentinel.Sentinel([])
    sentinel.discover_master = (lambda _: address) if package.is_sync else primary
    with package.closing(sentinel.master_for("it", max_connections=1)) as client:
        lock = package.lock(client)
        package.now(lock.acquire())
        connection = package.now(client.connection_pool.get_connection("_"))
        package.now(lock.release())
        package.now(client.connection_pool.release(connection))
    assert not server.admin.exists("stock")


def test_a_pool_that_was_waited_for_in_vain_is_left(server: Server, package: Package) -> None:
    # Threads do not wait for it at all.
    seconds = PATIENCE if package.is_sync else 0.1
    pool = package.redis.BlockingConnectionPool(port=server.port, max_connections=1, timeout=seconds)
    with package.closing(package.redis.Redis(connection_pool=pool)) as client:
        lock = package.lock(client)
        package.now(lock.acquire())
        connection = package.now(pool.get_connection("_"))
        # As if another had been faster.
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(_protocol, "would_wait", lambda _: False)
            start = time.monotonic()
            package.now(lock.release())
            assert time.monotonic() - start < PATIENCE / 2
        package.now(pool.release(connection))
        package.now(pool.disconnect())
    assert not server.admin.exists("stock")


def test_a_release_that_has_failed_can_be_repeated(server: Server, package: Package) -> None:
    with Proxy(server.port) as proxy, package.client(port=proxy.port) as client:
        lock = package.lock(client)
        package.now(lock.acquire())
        proxy.answer(b"LOCK.RELEASE", b"-ERR of another kind", times=1)
        with pytest.raises(redis.ResponseError):
            package.now(lock.release())
        assert lock.fence
        package.now(lock.release())
        assert lock.fence is None
    assert not server.admin.exists("stock")


def test_a_cluster_finds_the_node_of_the_lock(server: Server, package: Package) -> None:
    now = package.now
    with running(server.version, "--cluster-enabled", "yes") as node:
        node.admin.execute_command("CLUSTER", "ADDSLOTS", *range(16384))
        until(lambda: node.admin.cluster("info")["cluster_state"] == "ok", "a cluster")
        with package.closing(package.redis.RedisCluster.from_url(node.url)) as cluster:
            lock = cluster.lock("stock", timeout=10, lock_class=package.locks.Lock, thread_local=False)
            assert now(lock.acquire())
            assert now(lock.owned())
            assert not now(cluster.lock("stock", blocking_timeout=0.1, lock_class=package.locks.Lock).acquire())
            now(lock.extend(5))
            now(lock.release())
            assert not now(lock.locked())
