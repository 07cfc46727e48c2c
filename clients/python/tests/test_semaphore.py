"""Permits: never more than there are, in order of arrival, each a lock of its own."""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any, Literal

import pytest
import redis
import redis.asyncio

from redis_lock_client import Semaphore
from redis_lock_client import asyncio as ours

from .server import PATIENCE, Server
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


def test_there_are_never_more_holders_than_permits(server: Server) -> None:
    inside, most, counts = 0, 0, threading.Lock()

    def come(difference: int) -> None:
        nonlocal inside, most
        with counts:
            inside += difference
            most = max(most, inside)

    def work() -> None:
        come(1)
        time.sleep(0.05)
        come(-1)

    workers = [waiter(KINDS[number % 3], server, work, permits=4) for number in range(18)]
    assert all(worker.result() for worker in workers)
    assert most == 4


def test_the_number_must_be_one(client: redis.Redis) -> None:
    for wrong in (0, -1, 2**31):
        with pytest.raises(ValueError, match="permits"):
            Semaphore(client, "stock", wrong)


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


def test_at_least_makes_it_a_limit_of_rate(server: Server, client: redis.Redis) -> None:
    # Three in each 0.5 s, also when each takes less.
    start = time.monotonic()
    for _ in range(7):
        with Semaphore(client, "stock", 3, timeout=5, at_least=0.5):
            pass
    assert 1.0 <= time.monotonic() - start < 3
