"""A job that many processes start at the same time, and one of them runs."""

import contextlib
import functools
from collections.abc import Awaitable, Callable
from typing import Any, ParamSpec, TypeVar, Unpack

from ..once import OnceOptions, TaskResult, lock_of_job
from .lock import Lock

__all__ = ["TaskResult", "run_once", "runs_once"]

P = ParamSpec("P")
T = TypeVar("T")


async def run_once(
    redis: Any, name: str | bytes, job: Callable[[], Awaitable[T]], **options: Unpack[OnceOptions]
) -> TaskResult[T]:
    """Run the job only if nobody else runs it, or has begun it within the last `at_least` seconds.

    As `redis_lock_client.run_once`, but for the job, which is awaited.
    """
    once = lock_of_job(Lock, redis, name, **options)
    if not await once.acquire():
        return TaskResult(False, None)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_exit(once)
        return TaskResult(True, await job())


def runs_once(
    redis: Any, name: str | bytes, **options: Unpack[OnceOptions]
) -> Callable[[Callable[P, Awaitable[T]]], Callable[P, Awaitable[TaskResult[T]]]]:
    """Decorate a coroutine function that many processes call, and one runs: as `redis_lock_client.runs_once`."""

    def decorate(job: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[TaskResult[T]]]:
        @functools.wraps(job)
        async def run(*args: P.args, **kwargs: P.kwargs) -> TaskResult[T]:
            return await run_once(redis, name, lambda: job(*args, **kwargs), **options)

        return run

    return decorate
