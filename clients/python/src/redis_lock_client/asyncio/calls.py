"""Decorators: many calls with one key run once, and all of them get what it returns."""

import functools
from collections.abc import Awaitable, Callable
from typing import Any, ParamSpec, TypeVar, Unpack

from ..calls import KEEP, Key, marking, naming
from ..results import ResultOptions, SharedOptions
from .results import Result, once, take

__all__ = ["idempotent", "single_flight"]

P = ParamSpec("P")
T = TypeVar("T")


def single_flight(
    redis: Any, key: Key, **options: Unpack[ResultOptions]
) -> Callable[[Callable[P, Awaitable[T]]], Callable[P, Awaitable[T]]]:
    """Decorate a coroutine function whose calls with one key run once: as `redis_lock_client.single_flight`."""

    def decorate(function: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
        name = naming(function, key)
        # A wrong client or option is an error here, not at the first call.
        Result(redis, "", **options)

        @functools.wraps(function)
        async def call(*args: P.args, **kwargs: P.kwargs) -> T:
            make = functools.partial(function, *args, **kwargs)
            result: T = await once(redis, name(*args, **kwargs), make, **options)
            return result

        return call

    return decorate


def idempotent(
    redis: Any,
    key: Key,
    fingerprint: Callable[..., str | bytes] | None = None,
    **options: Unpack[SharedOptions],
) -> Callable[[Callable[P, Awaitable[T]]], Callable[P, Awaitable[T]]]:
    """Decorate a coroutine function that runs once for a key: as `redis_lock_client.idempotent`."""

    def decorate(function: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
        name, mark = naming(function, key), marking(function, fingerprint)
        Result(redis, "", **options)

        @functools.wraps(function)
        async def call(*args: P.args, **kwargs: P.kwargs) -> T:
            more: Any = {"keep": KEEP, **options, "early": None, "mark": mark(*args, **kwargs)}
            make = functools.partial(function, *args, **kwargs)
            result: T = await take(Result(redis, name(*args, **kwargs), **more), make)
            return result

        return call

    return decorate
