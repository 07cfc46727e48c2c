"""The locks for tasks: the whole interface of `redis.asyncio.lock.Lock`."""

from functools import partial
from typing import TYPE_CHECKING, Any, Self

from .acquire import Attempt
from .core import Core, Done
from .driver import AsyncDriver
from .keeper import AsyncKeepAlive
from .kinds import MultiCore, RWCore, SemaphoreCore
from .libraries import theirs
from .listener import NOTIFY_MS, Listener, Listeners
from .steps import Steps, run_async

if TYPE_CHECKING:
    from redis.asyncio.lock import Lock as Theirs
else:
    # The lock of each library that is installed, so that `isinstance` holds.
    class Theirs(*theirs("asyncio.lock", "Lock")): ...


class Lock(Core, Theirs):
    """An exclusive lock with the whole interface of `redis.asyncio.lock.Lock`, which waits in the server's queue.

    What differs is what differs in `redis_lock_client.Lock`. Each task wants a lock object of its own, as with
    redis-py: the token is kept per thread, not per task.
    """

    _driver_class = AsyncDriver

    def _send(self, *commands: tuple[Any, ...], **how: Any) -> Any:
        # One that waits would hold up the commands of others.
        if self.wait == "block" or how.get("decodes") or "may_wait" in how:
            return super()._send(*commands, **how)
        # Over another connection they might overtake the request whose hold they end.
        return Listeners.of(self._driver, self.redis).line.send(commands)

    def _wait(self, attempt: Attempt) -> Steps[bool]:
        # A conversion goes ahead of the queue and is rare: it may block a connection.
        if self.wait == "block" or attempt.before or not attempt.patience.left_ms():
            return (yield from super()._wait(attempt))
        keys = [self._driver.encoder(self.redis).encode(name) for name in self._names]
        with Listeners.of(self._driver, self.redis).listen(keys, attempt.token, attempt.is_own) as listener:
            listener.is_granted = yield from attempt.ask(partial(self._ask_and_listen, listener))
            return listener.is_granted

    def _ask_and_listen(self, listener: Listener, attempt: Attempt) -> Steps[int | None]:
        patience, ask = attempt.patience, partial(self._ask, *attempt.request)
        channel = yield listener.subscribed()
        left, keep = patience.left_ms(), patience.keep(self._grace_ms)
        reply = yield from ask(*(("NOTIFY", max(int(min(left, NOTIFY_MS)), 1), channel, *keep) if left else ()))
        fence: int | None = reply if isinstance(reply, int) else None
        if fence is not None or not left:
            return fence
        fence = yield listener.hear(patience.left_ms())
        if fence is not None and not listener.trusts_messages:
            # Without waiting, and so that the place stays: what says no has not granted it.
            fence = yield from ask(*keep)
        return fence

    async def __aenter__(self) -> Self:
        """Acquire, or raise LockError."""
        return await run_async(self._enter())

    __aexit__ = Done(Core._exit)

    acquire = Done(Core._acquire)

    def keep_alive(self) -> AsyncKeepAlive:
        """Return a context that renews the hold at a third of its timeout, and cancels its body when it is lost."""
        return AsyncKeepAlive(self)


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
