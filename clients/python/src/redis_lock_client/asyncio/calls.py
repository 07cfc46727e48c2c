"""Decorators: many calls with one key run once, and all of them get what it returns."""

import functools
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, Unpack

from ..calls import Key, decorating
from ..results import ResultOptions, SharedOptions
from .results import Result, take

__all__ = ["idempotent", "single_flight"]

F = TypeVar("F", bound=Callable[..., Awaitable[Any]])


def _wrap(function: Callable[..., Any], result: Callable[..., Result]) -> Callable[..., Any]:
    async def call(*args: Any, **kwargs: Any) -> Any:
        return await take(result(*args, **kwargs), functools.partial(function, *args, **kwargs))

    return call


def single_flight(redis: Any, key: Key, **options: Unpack[ResultOptions]) -> Callable[[F], F]:
    """Decorate a coroutine function whose calls with one key run once: as `redis_lock_client.single_flight`."""
    return decorating(_wrap, Result, redis, key, options)


def idempotent(
    redis: Any, key: Key, fingerprint: Callable[..., str | bytes] | None = None, **options: Unpack[SharedOptions]
) -> Callable[[F], F]:
    """Decorate a coroutine function that runs once for a key: as `redis_lock_client.idempotent`."""
    return decorating(_wrap, Result, redis, key, options, fingerprint=fingerprint)
