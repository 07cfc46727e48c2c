"""A job that many processes start at the same time, and one of them runs."""

import contextlib
import functools
import inspect
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, NotRequired, ParamSpec, TypedDict, TypeVar, Unpack

from .lock import Lock
from .options import is_finite

__all__ = ["TaskResult", "run_once", "runs_once"]

P = ParamSpec("P")
T = TypeVar("T")
L = TypeVar("L")

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


# Return the lock under which a job runs once, of the sync kind or that of asyncio.
def lock_of_job(
    kind: Callable[..., L], redis: Any, name: str | bytes, *, at_most: float, at_least: float = 0, **options: Any
) -> L:
    if not (is_finite("at_most", at_most) and at_most > 0):
        raise ValueError("at_most must be a number of seconds above 0")
    if not (is_finite("at_least", at_least) and 0 <= at_least <= at_most):
        raise ValueError("at_least must be from 0 to at_most")
    once: Any = kind(
        redis, name, timeout=at_most, at_least=at_least, blocking=False, raise_on_release_error=False, **options
    )
    once._ttl_option = "at_most"
    return once  # type: ignore[no-any-return]


# Raise TypeError for an async function or a generator: the lock would be released before it has begun.
def refuse_what_runs_later(function: Callable[..., Any]) -> None:
    kinds = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
    if any(is_of_kind(function) for is_of_kind in kinds):
        raise TypeError(f"{function} {RUNS_LATER}")


# Raise TypeError for what is still to be awaited: no look at a function finds all of those that return it.
def refuse_a_later_result(function: Callable[..., Any], result: Any) -> None:
    if not inspect.isawaitable(result):
        return
    if inspect.iscoroutine(result):
        # It says nothing more about never having been awaited.
        result.close()
    raise TypeError(f"{function} has returned an awaitable: it {RUNS_LATER}")


def run_once(redis: Any, name: str | bytes, job: Callable[[], T], **options: Unpack[OnceOptions]) -> TaskResult[T]:
    """Run the job only if nobody else runs it, or has begun it within the last `at_least` seconds.

    The lock is not renewed: after `at_most` seconds another one may run the job, so choose more than it ever takes. A
    job that fails has run. A job that took longer than `at_most` is told by a warning of the logger
    `redis_lock_client`.
    """
    refuse_what_runs_later(job)
    once = lock_of_job(Lock, redis, name, **options)
    if not once.acquire():
        return TaskResult(False, None)
    with contextlib.ExitStack() as stack:
        stack.push(once)
        result = job()
        refuse_a_later_result(job, result)
        return TaskResult(True, result)


def runs_once(
    redis: Any, name: str | bytes, **options: Unpack[OnceOptions]
) -> Callable[[Callable[P, T]], Callable[P, TaskResult[T]]]:
    """Decorate a job, of APScheduler say, that many processes start at the same time, and one of them runs.

    The options are those of `run_once`. The decorated job returns a `TaskResult`.
    """

    def decorate(job: Callable[P, T]) -> Callable[P, TaskResult[T]]:
        refuse_what_runs_later(job)

        @functools.wraps(job)
        def run(*args: P.args, **kwargs: P.kwargs) -> TaskResult[T]:
            return run_once(redis, name, lambda: job(*args, **kwargs), **options)

        return run

    return decorate
