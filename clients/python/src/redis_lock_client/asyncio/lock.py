"""The locks for tasks: the whole interface of `redis.asyncio.lock.Lock`."""

import asyncio
import contextlib
import functools
import math
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar

from ..acquire import IMPATIENCE, Patience, Steps, ask
from ..core import Core, MultiCore, RWCore, SemaphoreCore
from ..driver import DEFAULT_TIMEOUT, AsyncDriver
from ..libraries import theirs
from ..listener import NOTIFY_MS, Listener, Listeners
from ..replies import Held
from .keeper import KeepAlive

if TYPE_CHECKING:
    from redis.asyncio.lock import Lock as Theirs
else:

    class Theirs(*theirs("asyncio.lock", "Lock")):
        """The lock of each library that is installed, so that `isinstance` holds."""


__all__ = ["Lock", "MultiLock", "RWLock", "ReadLock", "Semaphore", "WriteLock"]

P = ParamSpec("P")
T = TypeVar("T")

# A task that nothing refers to may vanish.
_unfinished: "set[asyncio.Task[Any]]" = set()


# Do what the steps ask for, one by one, in this task.
async def run(steps: Steps[T]) -> T:
    answer: Any = None
    failure: BaseException | None = None
    task = asyncio.current_task()
    while True:
        try:
            error, failure = failure, None
            act = steps.send(answer) if error is None else steps.throw(error)
            cancelled_before = task.cancelling() if task else 0
            answer = await act()
            # Before Python 3.12 asyncio.wait_for, by which the libraries send, may swallow a cancellation.
            if task and task.cancelling() > cancelled_before:
                raise asyncio.CancelledError
        except StopIteration as end:
            result: T = end.value
            return result
        except BaseException as error:
            if steps.gi_frame is None:  # type: ignore[attr-defined]
                raise
            failure = error


# A method that does the steps of this name.
def _does(steps: Callable[Concatenate[Any, P], Steps[T]]) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    @functools.wraps(steps)
    async def method(self: Any, *args: P.args, **kwargs: P.kwargs) -> T:
        return await run(getattr(self, steps.__name__)(*args, **kwargs))

    method.__name__ = steps.__name__[1:]
    return method  # type: ignore[return-value]


# Do these steps to their end, whatever becomes of the caller: it may be cancelled many times, and its loop end.
# The caller waits for so many seconds at most, and when it is cancelled, for `IMPATIENCE`.
async def finish(make: Callable[[], Steps[T]], seconds: float = math.inf, may_go_on: bool = True) -> T | None:
    is_given_up = False

    async def work() -> T:
        tries = 0
        while True:
            try:
                return await run(make())
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

    async def _hurry(self, make: Callable[..., Steps[Any]], is_own: bool) -> None:
        # Later it might release what the owner of a token that was passed has acquired meanwhile.
        await finish(partial(make, hurry=DEFAULT_TIMEOUT), IMPATIENCE, may_go_on=is_own)

    async def _locked_by(self, mutex: asyncio.Lock, make: Callable[[], Steps[Any]]) -> Any:
        async with mutex:
            return await run(make())

    def _send(self, *commands: tuple[Any, ...], within: float | None = None, **how: Any) -> Steps[list[Any]]:
        if self.wait == "block" or how.get("decodes"):
            return (yield from super()._send(*commands, within=within, **how))
        # Over another connection they might overtake the request whose hold they end.
        replies: list[Any] = yield partial(Listeners.of(self._driver, self.redis).line.send, commands)
        return replies

    def _wait(self, token: bytes, patience: Patience, before: Held | None, is_own: bool) -> Steps[bool]:
        # A conversion goes ahead of the queue and is rare: it may block a connection.
        is_notified = self.wait == "notify" and not before and patience.left_ms() > 0
        if not is_notified:
            return (yield from super()._wait(token, patience, before, is_own))
        keys = [self._driver.encode(self.redis, name) for name in self._names]
        with Listeners.of(self._driver, self.redis).listen(keys, token, is_own) as listener:

            def once(request: tuple[Any, ...]) -> Steps[Any]:
                return (yield partial(self._ask_and_listen, request, patience, listener))

            listener.is_granted = yield from ask(self, token, patience, is_own, once)
            return listener.is_granted

    async def _ask_and_listen(self, request: tuple[Any, ...], patience: Patience, listener: Listener) -> Any:
        channel = await listener.subscribed()
        if not (left := patience.left_ms()):
            return await listener.line.execute(*request)
        longest, keep = max(int(min(left, NOTIFY_MS)), 1), patience.keep(self._grace_ms())
        reply = await listener.line.execute(*request, "NOTIFY", longest, channel, *keep)
        if isinstance(reply, int):
            return reply
        fence = await listener.hear(patience.left_ms()) if listener.is_at_the_primary() else None
        if fence is None or listener.trusts_messages:
            return fence
        # Without waiting, and so that the place stays: what says no has not granted it.
        return await listener.line.execute(*request, *keep)

    async def __aenter__(self) -> Self:
        """Acquire, or raise LockError."""
        await run(self._enter())
        return self

    async def __aexit__(self, *_: object) -> None:
        """Release."""
        await self._end(self._exit)

    async def acquire(
        self, blocking: bool | None = None, blocking_timeout: float | None = None, token: str | bytes | None = None
    ) -> bool:
        """Take the lock and return True, or return False when it was not available in time."""
        return await run(self._acquire(blocking, blocking_timeout, token))

    async def release(self) -> None:
        """Release the lock, also when the caller is cancelled. It can be called again if nobody has answered."""
        await self._end(self._release)

    async def _end(self, make: Callable[[], Steps[None]]) -> None:
        try:
            await run(make())
        except asyncio.CancelledError:
            # It may not have been sent. To do it twice does no harm.
            if self.local.token is not None:
                with contextlib.suppress(*self._driver.error):
                    await finish(self._release)
            raise

    def keep_alive(self) -> KeepAlive:
        """Return a context that renews the hold at a third of its timeout, and cancels its body when it is lost."""
        return KeepAlive(self)

    do_acquire = _does(Core._do_acquire)
    locked = _does(Core._locked)
    owned = _does(Core._owned)
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
