"""A lock that several may hold: permits, handed out in order of arrival."""

from typing import Any, Unpack

from . import _protocol as protocol
from ._core import SemaphoreCore
from .lock import Lock, run

__all__ = ["Semaphore"]


class Semaphore(SemaphoreCore, Lock):
    """One of at most `permits` holds of a key, with everything that a `Lock` has: each has its own ttl and fence.

    An object is one permit for each thread: `with Semaphore(client, "api", 10, timeout=30) as permit:`. Where
    callers name different numbers, the smallest one counts while its caller holds. `locked` is whether none is free.
    """

    def __init__(self, redis: Any, name: str | bytes, permits: int, **options: Unpack[protocol.LockOptions]) -> None:
        """Take the number of permits, then the options of `Lock`."""
        super().__init__(redis, name, **options)
        self._take_permits(permits)

    def available(self) -> int:
        """Return how many permits nobody holds."""
        return run(self._available())
