"""The asyncio lock: the same interface, tasks instead of threads, and cancellation."""

import asyncio

import pytest
import redis
import redis.asyncio

from redis_lock_client.asyncio import Lock

from .proxy import deaf_to_reply
from .server import Server, until

Client = redis.asyncio.Redis


async def test_a_wait_cancelled_with_its_grant_on_the_way_leaves_nothing_behind(
    server: Server, async_client: Client
) -> None:
    async with deaf_to_reply(server.port, b"LOCK.ACQUIRE") as client:
        task = asyncio.create_task(Lock(client, "stock").acquire())
        await asyncio.to_thread(until, lambda: server.admin.exists("stock"), "the grant")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not await async_client.exists("stock")


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
                _, pending = await asyncio.wait([task], timeout=2)
                assert not pending, f"swallowed after {steps} steps"
                assert task.cancelled()
        assert not await client.exists("stock")
