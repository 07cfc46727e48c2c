"""Permits: never more than there are, in order of arrival, each a lock of its own."""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any, Literal

import pytest
import redis
import redis.asyncio

from redis_lock_client import Lock, NotSupportedError, Semaphore, WriteLock
from redis_lock_client import asyncio as ours

from .crowd import crowd
from .proxy import Proxy
from .server import PATIENCE, Server, until
from .test_places import LONG_GRACE, interrupt_when
from .worker import KINDS, Worker

Client = redis.asyncio.Redis


def permits(server: Server, number: int, of: int = 2) -> list[Semaphore]:
    """As many permits as asked for, held."""
    held = [Semaphore(server.admin, "stock", of, timeout=30) for _ in range(number)]
    assert all(each.acquire(blocking=False) for each in held)
    return held


def waiter(kind: str, server: Server, inside: Callable[[], object] = lambda: None, **settings: Any) -> Worker:
    port = settings.pop("port", server.port)
    return Worker(kind, port, inside, **{"what": "Semaphore", "permits": 2, **settings})


def test_a_permit_for_each_thread(server: Server, client: redis.Redis) -> None:
    shared = Semaphore(client, "stock", 3, timeout=30)
    barrier, fences = threading.Barrier(3), []

    def work() -> None:
        with shared:
            # All at a time, or it breaks.
            barrier.wait(PATIENCE / 2)
            fences.append(shared.fence)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(fences)) == 3
    assert not server.admin.exists("stock")


def test_how_many_are_free(server: Server, protocol: int) -> None:
    for decode in (False, True):
        with redis.Redis(port=server.port, protocol=protocol, decode_responses=decode) as client:
            semaphore = Semaphore(client, "stock", 3, timeout=30)
            assert (semaphore.available(), semaphore.locked()) == (3, False)
            (one,) = permits(server, 1, of=2)
            # The smallest number counts while its owner holds.
            assert semaphore.available() == 1
            with semaphore:
                assert (semaphore.available(), semaphore.locked()) == (0, True)
            one.release()
            with WriteLock(client, "stock", timeout=30):
                assert semaphore.available() == 0
            client.set("stock", "of an old client", px=50)
            assert semaphore.available() == 0
            assert semaphore.acquire()
            semaphore.release()


async def test_the_asyncio_semaphore(server: Server, async_client: Client) -> None:
    one = ours.Semaphore(async_client, "stock", 2, timeout=30)
    assert await one.available() == 2
    async with one, ours.Semaphore(async_client, "stock", 2, timeout=30) as two:
        assert await one.check() == one.fence != two.fence
        assert (await one.available(), await one.locked()) == (0, True)
        assert not await ours.Semaphore(async_client, "stock", 2).acquire(blocking=False)
    assert not await one.locked()
    await async_client.set("stock", "of an old client", px=50)
    assert await one.available() == 0


def test_the_number_must_be_one(client: redis.Redis) -> None:
    for wrong in (0, -1, 2**31):
        with pytest.raises(ValueError, match="permits"):
            Semaphore(client, "stock", wrong)


def test_permits_are_granted_in_the_order_of_arrival(server: Server) -> None:
    order: list[int] = []
    held = permits(server, 2)
    workers = []
    for number in range(9):
        timeout = (0.4, 0.7, None)[number // 3]
        work = hold_and_note(order, number)
        workers.append(waiter(KINDS[number % 3], server, work, client={"socket_timeout": timeout}))
        server.wait_for_waiters("stock", number + 1)
    calls = server.calls("lock.acquire")
    until(lambda: server.calls("lock.acquire") >= calls + 10, "several slices")
    # One permit goes round, so that the order can be seen.
    held[0].release()
    assert all(worker.result() for worker in workers)
    assert order == list(range(9))


def hold_and_note(order: list[int], number: int) -> Callable[[], None]:
    def inside() -> None:
        order.append(number)
        time.sleep(0.05)

    return inside


def test_an_interrupted_wait_leaves_nothing_behind(server: Server, client: redis.Redis) -> None:
    permits(server, 2)
    interrupt_when(lambda: server.waiters("stock") == 1)
    with pytest.raises(KeyboardInterrupt):
        Semaphore(client, "stock", 2, timeout=30, grace=LONG_GRACE).acquire()
    assert (server.waiters("stock"), len(server.tokens("stock"))) == (0, 2)


@pytest.mark.parametrize("wait", ["block", "notify"])
async def test_a_cancelled_wait_leaves_nothing_behind(
    server: Server, async_client: Client, wait: Literal["block", "notify"]
) -> None:
    permits(server, 2)
    lock = ours.Semaphore(async_client, "stock", 2, timeout=30, grace=LONG_GRACE, wait=wait)
    task = asyncio.create_task(lock.acquire())
    await asyncio.to_thread(server.wait_for_waiters, "stock", 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (server.waiters("stock"), len(server.tokens("stock"))) == (0, 2)


@pytest.mark.parametrize("of_other", [1, 2], ids=["exclusive", "narrower"])
def test_a_conversion_that_gives_up_leaves_the_permit_and_no_place(
    server: Server, client: redis.Redis, of_other: int
) -> None:
    held = permits(server, 3, of=3)
    wanted = Semaphore(client, "stock", of_other, timeout=30, grace=LONG_GRACE)
    assert not wanted.acquire(token=held[0].local.token, blocking_timeout=0.2)
    assert server.waiters("stock") == 0
    interrupt_when(lambda: server.waiters("stock") == 1)
    with pytest.raises(KeyboardInterrupt):
        wanted.acquire(token=held[0].local.token)
    assert server.waiters("stock") == 0
    assert (server.mode("stock"), server.info("stock")["limit"]) == ("counted", 3)
    assert held[0].check() == held[0].fence


@pytest.mark.parametrize("wait", ["block", "notify"])
async def test_a_cancelled_conversion_leaves_the_permit_and_no_place(
    server: Server, async_client: Client, wait: Literal["block", "notify"]
) -> None:
    held = permits(server, 2)
    wanted = ours.Lock(async_client, "stock", timeout=30, grace=LONG_GRACE, wait=wait)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await wanted.acquire(token=held[0].local.token)
    assert (server.waiters("stock"), server.mode("stock")) == (0, "counted")
    assert held[0].check() == held[0].fence


def test_processes_never_hold_more_than_there_are(server: Server) -> None:
    seen = crowd(server.port, "Semaphore", ["stock"], permits=4)["stock"]
    print(f"{len(seen)} holds of 3 processes with 18 workers, at most {max(seen)} at a time")
    assert max(seen) == 4
    assert len(seen) > 50
    assert not server.admin.exists("stock")


def test_at_least_makes_it_a_limit_of_rate(server: Server, client: redis.Redis) -> None:
    # Three in each 0.5 s, also when each takes less.
    start = time.monotonic()
    for _ in range(7):
        with Semaphore(client, "stock", 3, timeout=5, at_least=0.5):
            pass
    assert 1.0 <= time.monotonic() - start < 3


@pytest.mark.parametrize("kind", KINDS)
def test_a_module_without_limit_is_told(server: Server, kind: str) -> None:
    with Proxy(server.port) as proxy:
        proxy.refuse_options(b"LIMIT|KEEP|NOTIFY")
        with pytest.raises(NotSupportedError, match=r"does not know LIMIT: .*0\.2"):
            waiter(kind, server, port=proxy.port).result()


def test_a_key_with_the_name_of_an_option_is_none(server: Server) -> None:
    with Proxy(server.port) as proxy, redis.Redis(port=proxy.port) as client:
        proxy.refuse_options(b"KEEP")
        assert Lock(client, "LIMIT", timeout=30).acquire()
        assert proxy.refusals == 1
