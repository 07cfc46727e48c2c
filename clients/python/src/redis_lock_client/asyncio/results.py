"""One task makes a value, and all others that want it wait in the server's queue and get it: LOCK.ONCE."""

import contextlib
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Unpack

from ..results import ResultCore, ResultOptions, XFetch
from .keeper import KeepAlive
from .lock import Lock

__all__ = ["XFetch", "once"]


# Renews while the maker works. A maker whose hold is lost goes on: its own caller wants the value.
class Making(KeepAlive):
    _renews_at_once = _cancels = False


class Result(ResultCore, Lock):
    pass


# Return the value, made by this call or by another one.
async def take(result: Result, make: Callable[[], Awaitable[Any]]) -> Any:
    if not await result._look():
        assert result.found is not None
        return result.opened(result.found)
    try:
        async with Making(result):
            value = result.packed(await make())
    except BaseException as error:
        with contextlib.suppress(*result._driver.error):
            await result.release()
        if (old := result._instead(error)) is None:
            raise
        return result.opened(old)
    await result._end(partial(result._store, value))
    return result.opened(value)


async def once(
    redis: Any, name: str | bytes, make: Callable[[], Awaitable[Any]], **options: Unpack[ResultOptions]
) -> Any:
    """Return the value under the key `name`. One of all callers makes it, and the others wait and get it.

    As `redis_lock_client.once`, but for `make`, which is awaited. Each waiting task occupies a connection.
    """
    return await take(Result(redis, name, **options), make)
