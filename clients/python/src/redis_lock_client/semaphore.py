"""A lock that several may hold: permits, handed out in order of arrival."""

from typing import Any

from redis.exceptions import ResponseError

from . import _protocol as protocol
from .lock import Lock

__all__ = ["Semaphore"]


class Semaphore(Lock):
    """One of at most `permits` holds of a key, with everything that a `Lock` has: each has its own ttl and fence.

    An object is one permit for each thread: `with Semaphore(client, "api", 10, timeout=30) as permit:`. Where
    callers name different numbers, the smallest one counts while its caller holds.
    """

    def __init__(self, redis: Any, name: str | bytes, permits: int, *args: Any, **kwargs: Any) -> None:
        """Take the number of permits, then the arguments of `Lock`."""
        super().__init__(redis, name, *args, **kwargs)
        self.permits = protocol.checked_permits(permits)
        self._terms = ("LIMIT", permits, *self._terms)

    def available(self) -> int:
        """Return how many permits nobody holds."""
        try:
            info = self._info(self.name)
        except ResponseError as error:
            # An old client's lock.
            if protocol.is_wrong_type(error):
                return 0
            raise
        return protocol.available(info, self.permits)

    def locked(self) -> bool:
        """Return whether all permits are held."""
        return self.available() == 0
