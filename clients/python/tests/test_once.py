"""A job that runs once: not while another runs it, and not again within a time."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Any

import pytest
import redis
import redis.asyncio

from redis_lock_client import TaskResult, run_once, runs_once
from redis_lock_client import asyncio as ours

from .server import PATIENCE, Server, until

Client = redis.asyncio.Redis


def test_a_job_that_took_too_long_is_told(
    server: Server, client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    def job() -> str:
        until(lambda: not server.admin.exists("report"), "the end of the hold")
        return "late"

    with caplog.at_level(logging.WARNING):
        assert run_once(client, "report", job, at_most=0.1, at_least=0.1) == TaskResult(True, "late")
    assert "no longer owned" in caplog.text


async def later() -> None: ...


def generates() -> Iterator[int]:
    yield pytest.fail("it has run")


async def generates_later() -> AsyncIterator[int]:
    yield pytest.fail("it has run")


@pytest.mark.parametrize("job", [later, generates, generates_later, partial(later)])
def test_a_job_that_would_run_after_the_release_is_refused(server: Server, client: redis.Redis, job: Any) -> None:
    with pytest.raises(TypeError, match=r"locks in redis_lock_client\.asyncio"):
        runs_once(client, "report", at_most=30)(job)
    with pytest.raises(TypeError, match=r"locks in redis_lock_client\.asyncio"):
        run_once(client, "report", job, at_most=30)
    assert server.calls("lock.acquire") == 0


def test_a_job_whose_result_is_to_be_awaited_is_refused(server: Server, client: redis.Redis) -> None:
    with pytest.raises(TypeError, match="has returned an awaitable"):
        run_once(client, "report", lambda: later(), at_most=30)
    with pytest.raises(TypeError, match="has returned an awaitable"):
        runs_once(client, "report", at_most=30)(lambda: later())()
    assert not server.admin.exists("report")


async def test_a_cancelled_job_has_run(server: Server, async_client: Client) -> None:
    started = asyncio.Event()

    async def job() -> None:
        started.set()
        await asyncio.sleep(PATIENCE)

    task = asyncio.create_task(ours.run_once(async_client, "report", job, at_most=30, at_least=10))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert 0 < server.admin.pttl("report") <= 10_000
