"""A job that many processes start at the same time, and one of them runs."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, NotRequired, TypedDict, Unpack

from . import aio, lock
from .driver import is_of_asyncio
from .options import check_time
from .steps import P, Steps, T, run, run_async

# Of a function that a sync lock is to be held for.
RUNS_LATER = (
    "is async or a generator, and would run after the lock is released. "
    "Async functions need the locks in redis_lock_client.asyncio"
)


class OnceOptions(TypedDict):
    """The times of a job, in seconds, and `fallback`."""

    at_most: float
    at_least: NotRequired[float]
    linger: NotRequired[float | None]
    fallback: NotRequired[bool]


class TaskResult(NamedTuple, Generic[T]):
    """Whether this call has run the job, and what the job returned. It is true when it has."""

    was_executed: bool
    result: T | None

    def __bool__(self) -> bool:
        """Return whether this call has run the job."""
        return self.was_executed


# Return the lock under which a job runs once, of the client's kind.
def lock_of_job(redis: Any, name: str | bytes, *, at_most: float, at_least: float = 0, **options: Any) -> Any:
    check_time("at_most", at_most, above=0)
    check_time("at_least", at_least, at_most)
    kind: Any = aio.Lock if is_of_asyncio(redis) else lock.Lock
    once = kind(
        redis, name, timeout=at_most, at_least=at_least, blocking=False, raise_on_release_error=False, **options
    )
    once._ttl_option = "at_most"
    return once


# Raise TypeError for an async function or a generator, unless the client is for asyncio. To find it out by a call only
# would leave a hold for `at_least` behind.
def refuse_what_runs_later(function: Callable[..., Any], redis: Any = None) -> None:
    kinds = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
    if not is_of_asyncio(redis) and any(is_of_kind(function) for is_of_kind in kinds):
        raise TypeError(f"{function} {RUNS_LATER}")


# Return what a function returns that a lock is held for, or in asyncio what leads to it. Under a sync lock what is
# still to be awaited is refused: no look at a function finds all of those that return it.
def called(redis: Any, function: Callable[[], Any]) -> Any:
    result = function()
    if inspect.isawaitable(result) and not is_of_asyncio(redis):
        if inspect.iscoroutine(result):
            # It says nothing more about never having been awaited.
            result.close()
        raise TypeError(f"{function} has returned an awaitable: it {RUNS_LATER}")
    return result


def run_once(redis: Any, name: str | bytes, job: Callable[[], Any], **options: Unpack[OnceOptions]) -> Any:
    """Run the job only if nobody else runs it, or has begun it within the last `at_least` seconds.

    The lock is not renewed: after `at_most` seconds another one may run the job, so choose more than it ever takes. A
    job that fails has run. A job that took longer than `at_most` is told by a warning of the logger
    `redis_lock_client`. With a client for asyncio the job is a coroutine function, and the call is to be awaited.
    """
    refuse_what_runs_later(job, redis)
    once = lock_of_job(redis, name, **options)

    def steps() -> Steps[TaskResult[Any]]:
        if not (yield from once._acquire()):
            return TaskResult(False, None)
        try:
            return TaskResult(True, (yield called(redis, job)))
        finally:
            yield from once._exit()

    return (run_async if is_of_asyncio(redis) else run)(steps())


# Return what `call` does under the name of the function, for asyncio as a coroutine function.
def wrapping(redis: Any, function: Callable[P, Any], call: Callable[P, Any]) -> Callable[P, Any]:
    async def call_later(*args: P.args, **kwargs: P.kwargs) -> Any:
        return await call(*args, **kwargs)

    refuse_what_runs_later(function, redis)
    return functools.wraps(function)(call_later if is_of_asyncio(redis) else call)


def runs_once(
    redis: Any, name: str | bytes, **options: Unpack[OnceOptions]
) -> Callable[[Callable[P, Any]], Callable[P, Any]]:
    """Decorate a job, of APScheduler say, that many processes start at the same time, and one of them runs.

    The options are those of `run_once`. The decorated job returns a `TaskResult`.
    """

    def decorate(job: Callable[P, Any]) -> Callable[P, Any]:
        def run(*args: P.args, **kwargs: P.kwargs) -> Any:
            return run_once(redis, name, functools.partial(job, *args, **kwargs), **options)

        return wrapping(redis, job, run)

    return decorate
