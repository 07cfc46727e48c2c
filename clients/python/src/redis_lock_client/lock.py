"""The locks for threads: the whole interface of `redis.lock.Lock`, which waits in the server's queue."""

import functools
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar

from .acquire import IMPATIENCE, Attempt
from .core import Core
from .driver import SyncDriver
from .keeper import KeepAlive
from .kinds import MultiCore, RWCore, SemaphoreCore
from .libraries import theirs

if TYPE_CHECKING:
    from redis.lock import Lock as Theirs
else:

    class Theirs(*theirs("lock", "Lock")):
        """The lock of each library that is installed, so that `isinstance` holds."""


__all__ = ["Lock", "MultiLock", "RWLock", "ReadLock", "Semaphore", "WriteLock"]

P = ParamSpec("P")
T = TypeVar("T")


# Do it in this thread: nothing in it suspends.
def run(doing: Coroutine[Any, Any, T]) -> T:
    try:
        doing.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise RuntimeError("a lock of threads has waited for a loop")


# The method of this name, done in this thread.
def _does(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Any, P], T]:
    @functools.wraps(method)
    def does(self: Any, *args: P.args, **kwargs: P.kwargs) -> T:
        result: T = run(getattr(self, method.__name__)(*args, **kwargs))
        return result

    does.__name__ = method.__name__[1:]
    return does  # type: ignore[return-value]


class Lock(Core, Theirs):
    """An exclusive lock with the whole interface of `redis.lock.Lock`, which waits in the server's queue.

    What differs: a lock without `timeout` lives for 2^48 ms; nothing polls, and `sleep` counts in the fallback only;
    and the key holds a lock, not a string, so GET answers WRONGTYPE: ask `owned()` and `locked()`.
    """

    _driver_class = SyncDriver
    _waits = ("block",)

    async def _hurry(self, attempt: Attempt) -> None:
        await attempt.abandon(hurry=IMPATIENCE)

    def register_scripts(self) -> None:
        """Do nothing: there are none."""

    def __enter__(self) -> Self:
        """Acquire, or raise LockError."""
        run(self._enter())
        return self

    def __exit__(self, *_: object) -> None:
        """Release."""
        run(self._exit())

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

    do_acquire = _does(Core._do_acquire)
    locked = _does(Core._locked)
    owned = _does(Core._owned)
    release = _does(Core._release)
    do_release = _does(Core._do_release)
    extend = _does(Core._extend)
    do_extend = _does(Core._do_extend)
    reacquire = _does(Core._reacquire)
    do_reacquire = _does(Core._do_reacquire)
    exec = _does(Core._exec)
    check = _does(Core._check)


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

    available = _does(SemaphoreCore._available)


class RWLock(RWCore):
    __doc__ = RWCore.__doc__

    _reader, _writer = ReadLock, WriteLock
