"""The asyncio lock: the same interface, tasks instead of threads, and cancellation."""

import asyncio
from typing import Literal

import pytest
import redis
import redis.asyncio
import redis.asyncio.sentinel

from redis_lock_client.asyncio import Lock

from .proxy import Proxy
from .server import PATIENCE, Server, until

Client = redis.asyncio.Redis


async def test_a_cancellation_counts_at_whatever_moment(server: Server) -> None:
    async with Client.from_url(server.url, socket_timeout=0.4) as client:
        await client.ping()
        async with Lock(client, "stock", timeout=30):
            for steps in range(40):
                task = asyncio.create_task(Lock(client, "stock", timeout=30).acquire())
                for _ in range(steps):
                    await asyncio.sleep(0)
                task.cancel()
                # Waits for ever if the cancellation was swallowed.
                _, pending = await asyncio.wait([task], timeout=PATIENCE)
                assert not pending, f"swallowed after {steps} steps"
                assert task.cancelled()
        assert not await client.exists("stock")


@pytest.mark.parametrize("wait", ["block", "notify"])
async def test_a_cancelled_acquire_ends_at_a_silent_server(server: Server, wait: Literal["block", "notify"]) -> None:
    with Proxy(server.port) as proxy:
        # As redis-py 5 to 7 by default.
        async with Client(port=proxy.port, socket_timeout=None) as client:
            await client.ping()
            proxy.pause()
            lock = Lock(client, "stock", timeout=30, wait=wait)
            acquiring = asyncio.create_task(lock.acquire())
            _, waiting = await asyncio.wait([acquiring], timeout=0.2)
            assert waiting
            acquiring.cancel()
            _, waiting = await asyncio.wait([acquiring], timeout=PATIENCE / 4)
            assert not waiting
            assert acquiring.cancelled()
            proxy.resume()
            await asyncio.to_thread(until, lambda: not server.admin.exists("stock"), "the release")


@pytest.mark.parametrize("token", [None, "mine"])
async def test_a_cancelled_acquire_ends_at_a_server_that_has_granted_it_and_is_silent(
    server: Server, token: str | None
) -> None:
    with Proxy(server.port) as proxy:
        async with Client(port=proxy.port, socket_timeout=None) as client:
            await client.ping()
            proxy.hold_reply_to(b"LOCK.ACQUIRE")
            acquiring = asyncio.create_task(Lock(client, "stock", timeout=30).acquire(token=token))
            await asyncio.to_thread(until, lambda: server.admin.exists("stock"), "the grant")
            proxy.pause()
            acquiring.cancel()
            await asyncio.wait([acquiring], timeout=PATIENCE / 4)
            assert acquiring.cancelled()
            assert server.admin.exists("stock")
            proxy.resume()
            # By a token that was passed its owner may acquire again at once: a late release would end that hold.
            if token is None:
                await asyncio.to_thread(until, lambda: not server.admin.exists("stock"), "the release")
