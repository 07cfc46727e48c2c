"""The locks for threads: the whole interface of `redis.lock.Lock`, which waits in the server's queue."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Self

from .core import Core, Done
from .driver import SyncDriver
from .keeper import KeepAlive
from .kinds import MultiCore, RWCore, SemaphoreCore
from .libraries import theirs
from .steps import run

if TYPE_CHECKING:
    from redis.lock import Lock as Theirs
else:
    # The lock of each library that is installed, so that `isinstance` holds.
    class Theirs(*theirs("lock", "Lock")): ...


class Lock(Core, Theirs):
    """An exclusive lock with the whole interface of `redis.lock.Lock`, which waits in the server's queue.

    What differs: a lock without `timeout` lives for 2^48 ms; nothing polls, and `sleep` counts in the fallback only;
    and the key holds a lock, not a string, so GET answers WRONGTYPE: ask `owned()` and `locked()`.
    """

    _driver_class = SyncDriver

    def __enter__(self) -> Self:
        """Acquire, or raise LockError."""
        return run(self._enter())

    __exit__ = Done(Core._exit)

    def acquire(
        self,
        sleep: float | None = None,
        blocking: bool | None = None,
        blocking_timeout: float | None = None,
        token: str | bytes | None = None,
    ) -> bool:
        """Take the lock and return True, or return False when it was not available in time."""
        return run(self._acquire(blocking, blocking_timeout, token, sleep))

    def keep_alive(self, on_lost: Callable[[], object] | None = None) -> KeepAlive:
        """Return a context that renews the hold at a third of its timeout, and calls `on_lost` when it is lost."""
        return KeepAlive(self, on_lost)


class ReadLock(Lock):
    """A shared lock: any number of readers, and no writer beside them."""

    ACQUIRE = "RWLOCK.RLOCK"


class WriteLock(Lock):
    """The exclusive lock under the name that goes with `ReadLock`."""

    ACQUIRE = "RWLOCK.WLOCK"


class MultiLock(MultiCore, Lock):
    __doc__ = MultiCore.__doc__


class Semaphore(SemaphoreCore, Lock):
    __doc__ = SemaphoreCore.__doc__


class RWLock(RWCore):
    _reader, _writer = ReadLock, WriteLock
