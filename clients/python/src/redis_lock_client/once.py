"""A job that many processes start at the same time, and one of them runs."""

import contextlib
import functools
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, ParamSpec, TypeVar

from . import _protocol as protocol
from .lock import Lock

__all__ = ["TaskResult", "run_once", "runs_once"]

P = ParamSpec("P")
T = TypeVar("T")
L = TypeVar("L")


class TaskResult(NamedTuple, Generic[T]):
    """Whether this call has run the job, and what the job returned. It is true when it has."""

    was_executed: bool
    result: T | None

    def __bool__(self) -> bool:
        """Return whether this call has run the job."""
        return self.was_executed


def lock_of_job(
    kind: Callable[..., L],
    redis: Any,
    name: str | bytes,
    *,
    at_most: float,
    at_least: float,
    linger: float | None,
    fallback: bool,
) -> L:
    """Return the lock under which a job runs once, of the sync kind or that of asyncio."""
    return kind(
        redis,
        name,
        timeout=at_most,
        at_least=at_least,
        blocking=False,
        raise_on_release_error=False,
        linger=linger,
        fallback=fallback,
    )


def run_once(
    redis: Any,
    name: str | bytes,
    job: Callable[[], T],
    *,
    at_most: float,
    at_least: float = 0,
    linger: float | None = None,
    fallback: bool = False,
) -> TaskResult[T]:
    """Run the job only if nobody else runs it, or has begun it within the last `at_least` seconds.

    The lock is not renewed: after `at_most` seconds another one may run the job, so choose more than it ever takes. A
    job that fails has run. A job that took longer than `at_most` is told by a warning of the logger
    `redis_lock_client`.
    """
    protocol.refuse_what_runs_later(job)
    once = lock_of_job(Lock, redis, name, at_most=at_most, at_least=at_least, linger=linger, fallback=fallback)
    if not once.acquire():
        return TaskResult(False, None)
    with contextlib.ExitStack() as stack:
        stack.push(once)
        result = job()
        protocol.refuse_a_later_result(job, result)
        return TaskResult(True, result)


def runs_once(
    redis: Any,
    name: str | bytes,
    *,
    at_most: float,
    at_least: float = 0,
    linger: float | None = None,
    fallback: bool = False,
) -> Callable[[Callable[P, T]], Callable[P, TaskResult[T]]]:
    """Decorate a job, of APScheduler say, that many processes start at the same time, and one of them runs.

    The decorated job returns a `TaskResult`.
    """

    def decorate(job: Callable[P, T]) -> Callable[P, TaskResult[T]]:
        protocol.refuse_what_runs_later(job)

        @functools.wraps(job)
        def run(*args: P.args, **kwargs: P.kwargs) -> TaskResult[T]:
            return run_once(
                redis,
                name,
                lambda: job(*args, **kwargs),
                at_most=at_most,
                at_least=at_least,
                linger=linger,
                fallback=fallback,
            )

        return run

    return decorate
