"""The locks for threads: the whole interface of `redis.lock.Lock`, which waits in the server's queue."""

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar

from .acquire import IMPATIENCE, Steps
from .core import Core, MultiCore, RWCore, SemaphoreCore
from .driver import SyncDriver
from .keeper import KeepAlive
from .libraries import theirs

if TYPE_CHECKING:
    from redis.lock import Lock as Theirs
else:

    class Theirs(*theirs("lock", "Lock")):
        """The lock of each library that is installed, so that `isinstance` holds."""


__all__ = ["Lock", "MultiLock", "RWLock", "ReadLock", "Semaphore", "WriteLock"]

P = ParamSpec("P")
T = TypeVar("T")


# Do what the steps ask for, one by one, in this thread.
def run(steps: Steps[T]) -> T:
    answer: Any = None
    failure: BaseException | None = None
    while True:
        try:
            error, failure = failure, None
            act = steps.send(answer) if error is None else steps.throw(error)
            answer = act()
        except StopIteration as end:
            result: T = end.value
            return result
        except BaseException as error:
            # Of the steps themselves, or of what they asked for: a signal handler may raise anywhere.
            if steps.gi_frame is None:  # type: ignore[attr-defined]
                raise
            failure = error


# A method that does the steps of this name.
def _does(steps: Callable[Concatenate[Any, P], Steps[T]]) -> Callable[Concatenate[Any, P], T]:
    @functools.wraps(steps)
    def method(self: Any, *args: P.args, **kwargs: P.kwargs) -> T:
        result: T = run(getattr(self, steps.__name__)(*args, **kwargs))
        return result

    method.__name__ = steps.__name__[1:]
    return method  # type: ignore[return-value]


class Lock(Core, Theirs):
    """An exclusive lock with the whole interface of `redis.lock.Lock`, which waits in the server's queue.

    What differs: a lock without `timeout` lives for 2^48 ms; nothing polls, and `sleep` counts in the fallback only;
    and the key holds a lock, not a string, so GET answers WRONGTYPE: ask `owned()` and `locked()`.
    """

    _driver_class = SyncDriver
    _waits = ("block",)

    def _hurry(self, make: Callable[..., Steps[Any]], is_own: bool) -> Any:
        return run(make(hurry=IMPATIENCE))

    def _locked_by(self, mutex: Any, make: Callable[[], Steps[Any]]) -> Any:
        with mutex:
            return run(make())

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
