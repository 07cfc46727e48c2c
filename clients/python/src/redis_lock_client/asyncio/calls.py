"""Decorators: many calls with one key run once, and all of them get what it returns."""

import functools
from collections.abc import Awaitable, Callable
from typing import Any, ParamSpec, TypeVar, Unpack

from ..calls import Key, calls_of, marking
from ..results import ResultOptions, SharedOptions
from .results import Result, take

__all__ = ["idempotent", "single_flight"]

P = ParamSpec("P")
T = TypeVar("T")


def _taking(
    calls: Callable[[Callable[..., Any]], Any],
) -> Callable[[Callable[P, Awaitable[T]]], Callable[P, Awaitable[T]]]:
    def decorate(function: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
        of_call = calls(function)

        @functools.wraps(function)
        async def call(*args: P.args, **kwargs: P.kwargs) -> T:
            value: T = await take(*of_call(*args, **kwargs))
            return value

        return call

    return decorate


def single_flight(
    redis: Any, key: Key, **options: Unpack[ResultOptions]
) -> Callable[[Callable[P, Awaitable[T]]], Callable[P, Awaitable[T]]]:
    """Decorate a coroutine function whose calls with one key run once: as `redis_lock_client.single_flight`."""

    return _taking(lambda function: calls_of(Result, redis, function, key, options))


def idempotent(
    redis: Any,
    key: Key,
    fingerprint: Callable[..., str | bytes] | None = None,
    **options: Unpack[SharedOptions],
) -> Callable[[Callable[P, Awaitable[T]]], Callable[P, Awaitable[T]]]:
    """Decorate a coroutine function that runs once for a key: as `redis_lock_client.idempotent`."""

    return _taking(lambda function: calls_of(Result, redis, function, key, options, marking(function, fingerprint)))
