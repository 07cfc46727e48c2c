"""The library's Lock on the commands of the redis-lock module."""

import time
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, Unpack

from . import _protocol as protocol
from ._core import SHARED, Core
from .keep_alive import KeepAlive

if TYPE_CHECKING:
    from redis.lock import Lock as Theirs
else:
    # The lock of the client's library joins when a lock is made.
    Theirs = object

__all__ = ["Lock", "RWLock", "ReadLock", "WriteLock"]

T = TypeVar("T")


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends, because all that it waits for blocks this thread."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise AssertionError("it has suspended")


class Lock(Core, Theirs):
    """An exclusive lock with the whole interface of `redis.lock.Lock`, which waits in the server's queue.

    What differs: `sleep` is accepted and ignored, because nothing polls; a lock without `timeout` lives for 2^48 ms;
    and the key holds a lock, not a string, so GET answers WRONGTYPE: ask `owned()` and `locked()`.
    """

    _IS_ASYNC = False

    async def _settle(self, answer: Any) -> Any:
        return answer

    async def _pause(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 - a thread waits

    async def _execute_within(self, seconds: float, *args: Any) -> Any:
        client = protocol.bounded(self._library, self.redis, seconds)
        try:
            return await self._answered(client.execute_command, *args)
        except protocol.SilentError:
            raise self._library.timeout_error(protocol.SILENT) from None

    def _interrupted(self) -> None:
        # A signal handler has raised, between the request and its reply say. The connection is in the pool again,
        # and the next command would take that reply for its own: a fence, for a lock that somebody else holds.
        protocol.close_idle_connections(self._library, self.redis)

    def register_scripts(self) -> None:
        """Do nothing: there are none."""

    def __enter__(self) -> Self:
        """Acquire, or raise LockError."""
        run(self._enter())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
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

    def do_acquire(self, token: str | bytes) -> bool:
        """Ask once, without waiting."""
        return run(self._ask(protocol.encode(self.redis, token), protocol.Patience(0), self._ask_once))

    def locked(self) -> bool:
        """Return whether anybody holds the lock, an old client included."""
        return run(self._locked())

    def owned(self) -> bool:
        """Return whether this lock holds it."""
        return run(self._owned())

    def release(self) -> None:
        """Release the lock. It can be called again when the server has not answered."""
        run(self._release())

    async def _release(self) -> None:
        lease = self.local.lease
        if not (lease and self._at_least):
            return await super()._release()
        # A renewal that came after this release would prolong what the release leaves.
        with lease.renewing:
            await super()._release()

    async def _renew_once(self, token: bytes, ttl_ms: int, lease: protocol.Lease) -> bool:
        with lease.renewing:
            return await super()._renew_once(token, ttl_ms, lease)

    async def _abandon_under_way(
        self, token: bytes, before: protocol.Held | None, patience: protocol.Patience, is_own: bool
    ) -> None:
        pool = getattr(self.redis, "connection_pool", None)
        if is_own and pool:
            await self._release_impatiently(pool, token)
        else:
            await self._abandon(token, before, patience)

    def do_release(self, expected_token: str | bytes) -> None:
        """Release what the token holds."""
        run(self._do_release(expected_token))

    def extend(self, additional_time: float, replace_ttl: bool = False) -> Literal[True]:
        """Extend the hold by so many seconds, from the end of its ttl or from now on."""
        self._check_has_timeout("extend")
        return self.do_extend(additional_time, replace_ttl)

    def do_extend(self, additional_time: float, replace_ttl: bool) -> Literal[True]:
        """Extend the hold, by what its ttl is now or from now on."""
        return run(self._extend(additional_time, replace_ttl))

    def reacquire(self) -> Literal[True]:
        """Set the hold's ttl to the lock's timeout again."""
        self._check_has_timeout("reacquire")
        return self.do_reacquire()

    def do_reacquire(self) -> Literal[True]:
        """Set the hold's ttl to the lock's timeout again."""
        return run(self._reacquire())

    def exec(self, *command: Any) -> Any:
        """Run a command only if this lock is held, in one step in the server. Return the command's own reply, raw.

        Raise LockNotOwnedError when the lock is lost: then nothing was done.
        """
        return run(self._exec(*command))

    def check(self) -> int | None:
        """Ask the server whether this lock is held now. Return its fence, or None."""
        return run(self._check())

    def keep_alive(self, on_lost: Callable[[], object] | None = None) -> KeepAlive:
        """Return a context that renews the hold at a third of its timeout, and calls `on_lost` when it is lost."""
        token, lease = self._held_token("keep alive"), self.local.lease
        fence = self.local.fence if lease else None
        ttl_ms = protocol.lock_ttl_ms(self.timeout)
        not_owned = self._library.not_owned("keep alive", self.name)

        def renew() -> bool:
            return run(self._prolong(token, ttl_ms, fence, lease, kept._failed))

        try_again = self._library.try_again_error
        kept = KeepAlive(renew, ttl_ms, self.name, on_lost, not_owned, lease, self._linger, try_again)
        return kept


class ReadLock(Lock):
    """A shared lock: any number of readers, and no writer beside them."""

    ACQUIRE = "RWLOCK.RLOCK"
    _modes = SHARED


class WriteLock(Lock):
    """The exclusive lock under the name that goes with `ReadLock`."""

    ACQUIRE = "RWLOCK.WLOCK"


class RWLock:
    """A reader-writer lock: `with rwlock.read():` and `with rwlock.write():`."""

    def __init__(self, redis: Any, name: str | bytes, **options: Unpack[protocol.LockOptions]) -> None:
        """Take the arguments of `Lock`; each side gets them."""
        self._redis = redis
        self._name = name
        self._options = options
        # A wrong client or option is an error here, not later.
        self.read()

    def read(self, **options: Unpack[protocol.LockOptions]) -> ReadLock:
        """Return a new lock for a reader. Arguments given here go before those of the pair."""
        return ReadLock(self._redis, self._name, **protocol.merged(self._options, options))

    def write(self, **options: Unpack[protocol.LockOptions]) -> WriteLock:
        """Return a new lock for a writer. Arguments given here go before those of the pair."""
        return WriteLock(self._redis, self._name, **protocol.merged(self._options, options))
