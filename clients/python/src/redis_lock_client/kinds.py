"""Locks of several keys, of counted permits, and pairs of readers and writers."""

from collections.abc import Sequence
from typing import Any, ClassVar, Unpack

from .core import Core, Done
from .options import LockOptions
from .replies import available
from .steps import Steps

# The most permits that the module takes.
MOST_PERMITS = 2**31 - 1


class MultiCore(Core):
    """A lock of several keys with one fence, taken and released together: `MultiLock(client, ["a", "b"], timeout=30)`.

    While it waits it holds nothing, so multi-locks never wait for one another in a circle. In a cluster all the keys
    need one hash tag. `locked` is about any of the keys, `owned` about all; `exec` is guarded by the first.
    """

    ACQUIRE = "LOCK.MACQUIRE"

    def __init__(
        self,
        redis: Any,
        names: Sequence[str | bytes],
        *,
        shared: Sequence[str | bytes] = (),
        **options: Unpack[LockOptions],
    ) -> None:
        """Take the names of the exclusive keys and of the shared ones, then the options of `Lock`."""
        if isinstance(names, str | bytes) or isinstance(shared, str | bytes):
            raise TypeError("a multi-lock takes a list of names")
        all_of = (*names, *shared)
        if not all_of or len(set(all_of)) < len(all_of):
            raise ValueError("a multi-lock takes one name or more, each once")
        super().__init__(redis, all_of[0], **options)
        self._names, self._keys = all_of, (len(all_of), *all_of)
        if self._driver.is_cluster and len({redis.keyslot(name) for name in all_of}) > 1:
            raise ValueError(f"in a cluster the keys of a multi-lock need one hash tag, as in 'a:{{7}}': {all_of}")
        modes = ["EXCLUSIVE"] * len(names) + ["SHARED"] * len(shared)
        self._terms = ("MODES", *modes) if shared else ()


class SemaphoreCore(Core):
    """One of at most `permits` holds of a key, with everything that a `Lock` has: each has its own ttl and fence.

    An object is one permit for each thread: `with Semaphore(client, "api", 10, timeout=30) as permit:`. Where
    callers name different numbers, the smallest one counts while its caller holds. `locked` is whether none is free.
    """

    def __init__(self, redis: Any, name: str | bytes, permits: int, **options: Unpack[LockOptions]) -> None:
        """Take the number of permits, then the options of `Lock`."""
        super().__init__(redis, name, **options)
        if not 1 <= permits <= MOST_PERMITS:
            raise ValueError(f"permits must be from 1 to {MOST_PERMITS}")
        self.permits = permits
        self._terms = ("LIMIT", permits)

    def _available(self) -> Steps[int]:
        yield from self._falls_back()
        return available((yield from self._once_more(self._info, self.name, 0)), self.permits)

    @Done
    def available(self) -> Steps[int]:
        """Return how many permits nobody holds."""
        return self._available()

    @Done
    def locked(self) -> Steps[bool]:
        """Return whether no permit is free."""
        return (yield from self._available()) == 0


class RWCore:
    """A reader-writer lock: `with rwlock.read():` and `with rwlock.write():`, in asyncio `async with`."""

    _reader: ClassVar[Any]
    _writer: ClassVar[Any]

    def __init__(self, redis: Any, name: str | bytes, **options: Unpack[LockOptions]) -> None:
        """Take the arguments of `Lock`; each side gets them."""
        self._make: Any = lambda kind, more: kind(redis, name, **{**options, **more})
        # A wrong client or option is an error here, not later.
        self._make(self._reader, {})

    def read(self, **options: Unpack[LockOptions]) -> Any:
        """Return a new lock for a reader. Arguments given here go before those of the pair."""
        return self._make(self._reader, options)

    def write(self, **options: Unpack[LockOptions]) -> Any:
        """Return a new lock for a writer. Arguments given here go before those of the pair."""
        return self._make(self._writer, options)
