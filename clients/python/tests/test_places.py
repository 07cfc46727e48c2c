"""A waiter keeps its place in the queue: over slices, over lost connections, and until it gives up, no longer."""

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Literal

import pytest
import redis
import redis.asyncio

import redis_lock_client
from redis_lock_client import Lock, RWLock
from redis_lock_client import asyncio as ours

from .proxy import Proxy
from .server import Server, until
from .worker import BOTH, KINDS, LOCKS, Worker, made

# Eight of them outlast the slice of a client at its defaults, which is 3.75 s.
HOLD = 0.6

# Longer than any test: a place that is gone was given up.
LONG_GRACE = 50


@pytest.mark.parametrize("kind", KINDS)
def test_at_its_defaults_it_gets_its_turn_among_clients_that_wait_without_end(server: Server, kind: str) -> None:
    holds, stop = 0, threading.Event()

    def take_turns(number: int) -> None:
        nonlocal holds
        with redis.Redis(port=server.port, socket_timeout=None) as client:
            while not stop.is_set():
                client.execute_command("LOCK.ACQUIRE", "stock", f"raw{number}", 30_000, "BLOCK", 0)
                holds += 1
                time.sleep(HOLD if not stop.is_set() else 0)
                client.execute_command("LOCK.RELEASE", "stock", f"raw{number}")

    threads = [threading.Thread(target=take_turns, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    server.wait_for_waiters("stock", 7)
    before, start = holds, time.monotonic()
    worker = Worker(kind, server.port)
    try:
        until(worker.is_done, "its turn")
        print(f"{kind}: granted after {holds - before} holds, {time.monotonic() - start:.2f} s")
        assert worker.result()
        assert holds - before <= 10
    finally:
        stop.set()
        for thread in threads:
            thread.join()


@pytest.mark.parametrize("what", LOCKS)
def test_workers_are_granted_in_the_order_in_which_they_came(server: Server, what: str) -> None:
    order: list[int] = []
    with Lock(server.admin, "stock", timeout=30) as held:
        workers = []
        # Slices from 0.3 s on, and some that never end: those would pass the ones that lose their places.
        for number in range(9):
            timeout = (0.4, 0.7, None)[number // 3]
            inside = partial(hold_for, 0.1, order, number)
            workers.append(Worker(KINDS[number % 3], server.port, inside, {"socket_timeout": timeout}, what))
            server.wait_for_waiters("stock", number + 1)
        calls = server.calls(LOCKS[what])
        until(lambda: server.calls(LOCKS[what]) >= calls + 10, "several slices")
        held.release()
        assert all(worker.result() for worker in workers)
        held.acquire()
    assert order == list(range(9))


@pytest.mark.parametrize("kind", KINDS)
def test_a_client_that_dies_while_it_waits_costs_its_grace_at_most(server: Server, kind: str) -> None:
    grace = 1.0
    held = Lock(server.admin, "stock", timeout=30)
    held.acquire()
    with Proxy(server.port) as proxy:
        dying = Worker(kind, proxy.port, client={"client_name": "doomed"}, grace=grace)
        server.wait_for_waiters("stock", 1)
        next_one = Worker("threads", server.port)
        server.wait_for_waiters("stock", 2)
        proxy.close()
        until(lambda: not connections(server, "doomed"), "the end of its connections")
        held.release()
        start = time.monotonic()
        assert next_one.result()
        assert grace / 4 < time.monotonic() - start < grace + 1
        with pytest.raises(redis.ConnectionError):
            dying.result()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("what", "fault"), [(what, fault) for what in ("Lock", "MultiLock") for fault in ("cut", "silence", "delay")]
)
def test_a_fault_during_a_slice_does_not_cost_the_place(server: Server, kind: str, what: str, fault: str) -> None:
    order: list[str] = []
    held = Lock(server.admin, "stock", timeout=30)
    held.acquire()
    with Proxy(server.port) as proxy:
        first = Worker(kind, proxy.port, lambda: order.append("first"), {"socket_timeout": 1.0}, what)
        server.wait_for_waiters("stock", 1)
        # Of several, the one for the other key, which is free but for the place.
        other = "prices" if what == "MultiLock" else "stock"
        later = Worker("threads", server.port, lambda: order.append("later"), name=other)
        server.wait_for_waiters(other, 2)
        if fault == "delay":
            # A slice and the way there and back are more than the socket timeout: the reply comes too late.
            calls, proxy.delay = server.calls(LOCKS[what]), 0.2
            if kind != "notify":
                until(lambda: server.calls(LOCKS[what]) >= calls + 3, "slices whose replies came too late")
        else:
            getattr(proxy, fault)()
        held.release()
        assert first.result()
        assert later.result()
    assert order == ["first", "later"]
    assert not server.admin.exists(*BOTH)


def test_who_does_not_wait_takes_no_place(server: Server, client: redis.Redis) -> None:
    with Lock(server.admin, "stock", timeout=30):
        assert not Lock(client, "stock").acquire(blocking=False)
        assert server.waiters("stock") == 0
        # And has none to give up.
        assert server.calls("lock.release") == 0


@pytest.mark.parametrize("what", LOCKS)
def test_an_interrupted_wait_leaves_no_place(server: Server, client: redis.Redis, what: str) -> None:
    with Lock(server.admin, "stock", timeout=30):
        interrupt_when(lambda: server.waiters("stock") == 1)
        with pytest.raises(KeyboardInterrupt):
            made(redis_lock_client, what, client, grace=LONG_GRACE).acquire()
        assert [server.waiters(name) for name in BOTH] == [0, 0]
    assert not server.admin.exists(*BOTH)


@pytest.mark.parametrize("what", LOCKS)
@pytest.mark.parametrize("wait", ["block", "notify"])
async def test_a_cancelled_wait_leaves_no_place(
    server: Server, async_client: "redis.asyncio.Redis", what: str, wait: Literal["block", "notify"]
) -> None:
    with Lock(server.admin, "stock", timeout=30):
        task = asyncio.create_task(made(ours, what, async_client, grace=LONG_GRACE, wait=wait).acquire())
        await asyncio.to_thread(server.wait_for_waiters, "stock", 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert [server.waiters(name) for name in BOTH] == [0, 0]
    assert not server.admin.exists(*BOTH)


def test_a_wait_that_ends_with_an_error_leaves_no_place(server: Server, client: redis.Redis) -> None:
    server.admin.execute_command("ACL", "SETUSER", "app", "reset", "on", "nopass", "~*", "+@all")
    held = Lock(server.admin, "stock", timeout=30)
    held.acquire()
    with Proxy(server.port) as proxy:
        settings = {"socket_timeout": 0.4, "username": "app", "password": "any"}
        worker = Worker("threads", proxy.port, client=settings, grace=LONG_GRACE)
        server.wait_for_waiters("stock", 1)
        server.admin.execute_command("ACL", "SETUSER", "app", "-lock.acquire")
        with pytest.raises(redis.exceptions.NoPermissionError):
            worker.result()
    assert server.waiters("stock") == 0


@pytest.mark.parametrize("wait", ["block", "notify"])
def test_an_upgrade_that_gives_up_leaves_the_share_and_no_place(
    server: Server, client: redis.Redis, wait: Literal["block", "notify"]
) -> None:
    page = RWLock(client, "page", timeout=30, grace=LONG_GRACE)
    with page.read() as one, page.read():
        assert not page.write(blocking_timeout=0.2).acquire(token=one.local.token)
        assert server.waiters("page") == 0
        interrupt_when(lambda: server.waiters("page") == 1)
        with pytest.raises(KeyboardInterrupt):
            page.write().acquire(token=one.local.token)
        assert server.waiters("page") == 0
        token = one.local.token

        async def cancelled() -> None:
            async with redis.asyncio.Redis(port=server.port) as client:
                page = ours.RWLock(client, "page", timeout=30, grace=LONG_GRACE, wait=wait)
                assert not await page.write(blocking_timeout=0.2).acquire(token=token)
                assert server.waiters("page") == 0
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.3):
                        await page.write().acquire(token=token)
                assert server.waiters("page") == 0

        asyncio.run(cancelled())
        assert server.mode("page") == "shared"
        assert one.owned()
        # An absent writer would keep it out.
        assert page.read().acquire(blocking=False)


def test_the_grace_is_an_option(server: Server, client: redis.Redis) -> None:
    for grace in (-1, 3601):
        with pytest.raises(ValueError, match="grace"):
            Lock(client, "stock", grace=grace)
    with Lock(server.admin, "stock", timeout=30), redis.Redis(port=server.port, socket_timeout=0.4) as impatient:
        server.admin.execute_command("CONFIG", "SET", "slowlog-log-slower-than", "0")
        server.admin.slowlog_reset()
        for short in (0, 0.25):
            assert not Lock(impatient, "stock", grace=short).acquire(blocking_timeout=0.1)
        server.admin.execute_command("CONFIG", "SET", "slowlog-log-slower-than", "10000")
        asked = [entry["command"] for entry in server.admin.slowlog_get(64) if b"BLOCK" in as_bytes(entry["command"])]
    assert [b"KEEP 250" in as_bytes(command) for command in asked] == [True, False]
    assert [b"KEEP" in as_bytes(command) for command in asked] == [True, False]


def hold_for(seconds: float, order: list[int], number: int) -> None:
    order.append(number)
    time.sleep(seconds)


def as_bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text


def connections(server: Server, name: str) -> list[str]:
    return [client["id"] for client in server.admin.client_list() if client["name"] == name]


def interrupt_when(condition: Callable[[], bool]) -> None:
    """Interrupt the main thread when it is true."""

    def interrupt() -> None:
        until(condition, "the moment to interrupt")
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
