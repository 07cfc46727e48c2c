"""The locks for tasks: the whole interface of `redis.asyncio.lock.Lock`."""

import asyncio
import contextlib
import math
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar

from ..acquire import IMPATIENCE, Attempt
from ..core import Core
from ..driver import DEFAULT_TIMEOUT, AsyncDriver
from ..kinds import MultiCore, RWCore, SemaphoreCore
from ..libraries import theirs
from ..listener import NOTIFY_MS, Listener, Listeners
from .keeper import KeepAlive

if TYPE_CHECKING:
    from redis.asyncio.lock import Lock as Theirs
else:

    class Theirs(*theirs("asyncio.lock", "Lock")):
        """The lock of each library that is installed, so that `isinstance` holds."""


__all__ = ["Lock", "MultiLock", "RWLock", "ReadLock", "Semaphore", "WriteLock"]

T = TypeVar("T")

# A task that nothing refers to may vanish.
_unfinished: "set[asyncio.Task[Any]]" = set()


# Do it to its end, whatever becomes of the caller: it may be cancelled many times, and its loop end.
# The caller waits for so many seconds at most, and when it is cancelled, for `IMPATIENCE`.
async def finish(make: Callable[[], Awaitable[T]], seconds: float = math.inf, may_go_on: bool = True) -> T | None:
    is_given_up = False

    async def work() -> T:
        tries = 0
        while True:
            try:
                return await make()
            except asyncio.CancelledError:
                # The loop is about to end, and waits for this task. What is done twice does no harm.
                tries += 1
                if is_given_up or tries == 3:
                    raise

    task = asyncio.create_task(work())
    _unfinished.add(task)
    task.add_done_callback(_forget)
    end = time.monotonic() + seconds
    cancelled: asyncio.CancelledError | None = None
    while not task.done() and (left := end - time.monotonic()) > 0:
        try:
            await asyncio.wait([task], timeout=None if left == math.inf else left)
        except asyncio.CancelledError as error:
            cancelled = error
            end = min(end, time.monotonic() + IMPATIENCE)
    if not task.done() and not may_go_on:
        is_given_up = True
        task.cancel()
    if cancelled:
        raise cancelled
    return task.result() if task.done() else None


# Errors are of no interest to who has left: the hold ends with its ttl, and the place with its grace.
def _forget(task: "asyncio.Task[Any]") -> None:
    _unfinished.discard(task)
    if not task.cancelled():
        task.exception()


class Lock(Core, Theirs):
    """An exclusive lock with the whole interface of `redis.asyncio.lock.Lock`, which waits in the server's queue.

    What differs is what differs in `redis_lock_client.Lock`. Each task wants a lock object of its own, as with
    redis-py: the token is kept per thread, not per task.
    """

    _driver_class = AsyncDriver
    _waits = ("block", "notify")

    async def _hurry(self, attempt: Attempt) -> None:
        # Later it might release what the owner of a token that was passed has acquired meanwhile.
        await finish(partial(attempt.abandon, hurry=DEFAULT_TIMEOUT), IMPATIENCE, may_go_on=attempt.is_own)

    async def _send(self, *commands: tuple[Any, ...], **how: Any) -> list[Any]:
        if self.wait == "block" or how.get("decodes"):
            return await super()._send(*commands, **how)
        # Over another connection they might overtake the request whose hold they end.
        return await Listeners.of(self._driver, self.redis).line.send(commands)

    async def _wait(self, attempt: Attempt) -> bool:
        # A conversion goes ahead of the queue and is rare: it may block a connection.
        if self.wait == "block" or attempt.before or not attempt.patience.left_ms():
            return await super()._wait(attempt)
        keys = [self._driver.encode(self.redis, name) for name in self._names]
        with Listeners.of(self._driver, self.redis).listen(keys, attempt.token, attempt.is_own) as listener:
            listener.is_granted = await attempt.ask(partial(self._ask_and_listen, listener))
            return listener.is_granted

    async def _ask_and_listen(self, listener: Listener, attempt: Attempt) -> int | None:
        patience, ask = attempt.patience, partial(self._ask, *attempt.request)
        channel = await listener.subscribed()
        reply: int | None
        if not (left := patience.left_ms()):
            reply = await ask()
            return reply
        longest, keep = max(int(min(left, NOTIFY_MS)), 1), patience.keep(self._grace_ms)
        reply = await ask("NOTIFY", longest, channel, *keep)
        if isinstance(reply, int):
            return reply
        fence = await listener.hear(patience.left_ms()) if listener.is_at_the_primary() else None
        if fence is not None and not listener.trusts_messages:
            # Without waiting, and so that the place stays: what says no has not granted it.
            fence = await ask(*keep)
        return fence

    async def __aenter__(self) -> Self:
        """Acquire, or raise LockError."""
        await self._enter()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Release."""
        await self._end(self._exit)

    async def acquire(
        self, blocking: bool | None = None, blocking_timeout: float | None = None, token: str | bytes | None = None
    ) -> bool:
        """Take the lock and return True, or return False when it was not available in time."""
        return await self._acquire(blocking, blocking_timeout, token)

    async def release(self) -> None:
        """Release the lock, also when the caller is cancelled. It can be called again if nobody has answered."""
        await self._end(self._release)

    async def _end(self, make: Callable[[], Awaitable[None]]) -> None:
        try:
            await make()
        except asyncio.CancelledError:
            # It may not have been sent. To do it twice does no harm.
            if self.local.token is not None:
                with contextlib.suppress(*self._driver.error):
                    await finish(self._release)
            raise

    def keep_alive(self) -> KeepAlive:
        """Return a context that renews the hold at a third of its timeout, and cancels its body when it is lost."""
        return KeepAlive(self)

    do_acquire = Core._do_acquire
    locked = Core._locked
    owned = Core._owned
    do_release = Core._do_release
    extend = Core._extend
    do_extend = Core._do_extend
    reacquire = Core._reacquire
    do_reacquire = Core._do_reacquire
    exec = Core._exec
    check = Core._check


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

    available = SemaphoreCore._available
    locked = SemaphoreCore._locked


class RWLock(RWCore):
    __doc__ = RWCore.__doc__

    _reader, _writer = ReadLock, WriteLock
