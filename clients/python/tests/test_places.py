"""A waiter keeps its place in the queue: over slices, over lost connections, and until it gives up, no longer."""

import asyncio
import os
import signal
import threading
from collections.abc import Callable
from typing import Literal

import pytest
import redis
import redis.asyncio

from redis_lock_client import Lock, RWLock
from redis_lock_client import asyncio as ours

from .proxy import Proxy
from .server import Server, until
from .worker import BOTH, KINDS, LOCKS, Package, Worker, at

# Eight of them outlast the slice of a client at its defaults, which is 3.75 s.
HOLD = 0.6

# Longer than any test: a place that is gone was given up.
LONG_GRACE = 50


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("what", "fault"), [(what, fault) for what in ("Lock", "MultiLock") for fault in ("silence", "delay")]
)
def test_a_fault_during_a_slice_does_not_cost_the_place(server: Server, kind: str, what: str, fault: str) -> None:
    order: list[str] = []
    held = Lock(server.admin, "stock", timeout=30)
    held.acquire()
    with Proxy(server.port) as proxy:
        first = Worker(kind, at(proxy.port, socket_timeout=1.0), lambda: order.append("first"), what)
        server.wait_for_waiters("stock", 1)
        # Of several, the one for the other key, which is free but for the place.
        other = "prices" if what == "MultiLock" else "stock"
        later = Worker("threads", at(server.port), lambda: order.append("later"), name=other)
        server.wait_for_waiters(other, 2)
        if fault == "delay":
            # A slice and the way there and back are more than the socket timeout: the reply comes too late.
            calls, proxy.delay = server.calls(LOCKS[what]), 0.2
            if kind != "notify":
                until(lambda: server.calls(LOCKS[what]) >= calls + 3, "slices whose replies came too late")
        else:
            proxy.silence()
        held.release()
        assert first.result()
        assert later.result()
    assert order == ["first", "later"]
    assert not server.admin.exists(*BOTH)


@pytest.mark.parametrize("what", LOCKS)
def test_an_interrupted_wait_leaves_no_place(server: Server, client: redis.Redis, what: str) -> None:
    with Lock(server.admin, "stock", timeout=30):
        interrupt_when(lambda: server.waiters("stock") == 1)
        with pytest.raises(KeyboardInterrupt):
            Package("threads").made(what, client, grace=LONG_GRACE).acquire()
        assert [server.waiters(name) for name in BOTH] == [0, 0]
    assert not server.admin.exists(*BOTH)


@pytest.mark.parametrize("what", LOCKS)
@pytest.mark.parametrize("wait", ["block", "notify"])
async def test_a_cancelled_wait_leaves_no_place(
    server: Server, async_client: "redis.asyncio.Redis", what: str, wait: Literal["block", "notify"]
) -> None:
    with Lock(server.admin, "stock", timeout=30):
        task = asyncio.create_task(Package("asyncio").made(what, async_client, grace=LONG_GRACE, wait=wait).acquire())
        await asyncio.to_thread(server.wait_for_waiters, "stock", 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert [server.waiters(name) for name in BOTH] == [0, 0]
    assert not server.admin.exists(*BOTH)


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


def interrupt_when(condition: Callable[[], bool]) -> None:
    """Interrupt the main thread when it is true."""

    def interrupt() -> None:
        until(condition, "the moment to interrupt")
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
