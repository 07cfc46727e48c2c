"""What the package of threads and that of tasks have alike: each test is for both."""

import pytest
import redis
import redis.asyncio.lock
import redis.asyncio.sentinel
import redis.lock
import redis.sentinel

from .proxy import Proxy
from .server import Server, running
from .worker import KINDS, LOCKS, Package, Worker, at


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
        waiting = Worker(kind, at(old.port))
        old.wait_for_waiters("stock", 1)
        old.admin.replicaof("127.0.0.1", str(server.port))
        # The answer to the second time: with Sentinel the client now looks for the new primary.
        with pytest.raises(redis.exceptions.ReadOnlyError):
            waiting.result()


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
