"""The library's asyncio Lock on the commands of the redis-lock module."""

import asyncio
from collections.abc import Awaitable
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack

from .. import _protocol as protocol
from .._core import SHARED, Core
from .._listening import NOTIFY_MS, Listener, Listeners, within
from .keep_alive import KeepAlive

if TYPE_CHECKING:
    from redis.asyncio.lock import Lock as Theirs
else:
    # The lock of the client's library joins when a lock is made.
    Theirs = object

__all__ = ["Lock", "RWLock", "ReadLock", "WriteLock"]


class Lock(Core, Theirs):
    """An exclusive lock with the whole interface of `redis.asyncio.lock.Lock`, which waits in the server's queue.

    What differs is what differs in `redis_lock_client.Lock`. Each task wants a lock object of its own, as with
    redis-py: the token is kept per thread, not per task.
    """

    _IS_ASYNC = True

    def __init__(
        self,
        redis: Any,
        name: str | bytes,
        timeout: float | None = None,
        sleep: float = 0.1,
        blocking: bool = True,
        blocking_timeout: float | None = None,
        thread_local: bool = True,
        raise_on_release_error: bool = True,
        *,
        grace: float = protocol.GRACE,
        linger: float | None = None,
        at_least: float = 0,
        fallback: bool = False,
        wait: Literal["block", "notify"] = "block",
    ) -> None:
        """Take the arguments of `redis_lock_client.Lock`, and `wait`.

        With `wait="block"` each waiting task occupies a connection. With `wait="notify"` all the waiting tasks of a
        client share two: one that hears of their grants, beside the pool, and one of the pool for their commands.
        """
        super().__init__(
            redis,
            name,
            timeout,
            sleep,
            blocking,
            blocking_timeout,
            thread_local,
            raise_on_release_error,
            grace=grace,
            linger=linger,
            at_least=at_least,
            fallback=fallback,
        )
        if wait not in ("block", "notify"):
            raise ValueError('wait must be "block" or "notify"')
        self.wait = wait

    async def _settle(self, answer: Any) -> Any:
        # Before Python 3.12 asyncio.wait_for, which redis-py sends by, may swallow a cancellation. It is not forgotten.
        task = asyncio.current_task()
        cancelled_before = task.cancelling() if task else 0
        reply = await answer
        if task and task.cancelling() > cancelled_before:
            raise asyncio.CancelledError
        return reply

    async def _pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def _execute_within(self, seconds: float, *args: Any) -> Awaitable[Any]:
        return within(self._library, seconds, self._execute_alone(*args))

    def _interrupted(self) -> None:
        # The client closes the connection of a command that is cancelled.
        pass

    def register_scripts(self) -> None:
        """Do nothing: there are none."""

    async def __aenter__(self) -> Self:
        """Acquire, or raise LockError."""
        await self._enter()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Release."""
        await self._exit()

    async def acquire(
        self,
        blocking: bool | None = None,
        blocking_timeout: float | None = None,
        token: str | bytes | None = None,
    ) -> bool:
        """Take the lock and return True, or return False when it was not available in time."""
        return await self._acquire(blocking, blocking_timeout, token)

    async def do_acquire(self, token: str | bytes) -> bool:
        """Ask once, without waiting."""
        return await self._ask(protocol.encode(self.redis, token), protocol.Patience(0), self._ask_once)

    async def _ask_patiently(
        self, token: bytes, patience: protocol.Patience, before: protocol.Held | None, is_own: bool
    ) -> bool:
        # A conversion goes ahead of the queue and is rare: it may block a connection.
        is_notified = self.wait == "notify" and not before and patience.left_ms() > 0
        if not is_notified or protocol.WITHOUT_NOTIFY.has(self.redis):
            return await self._ask(token, patience, self._ask_once, is_own)
        keys = [protocol.encode(self.redis, name) for name in self._names]
        with Listeners.of(self._library, self.redis).listen(keys, token, is_own) as listener:

            async def ask(request: tuple[Any, ...], patience: protocol.Patience) -> Any:
                if protocol.WITHOUT_NOTIFY.has(self.redis):
                    return await self._ask_once(request, patience)
                asking = self._ask_and_listen(request, patience, listener)
                return await within(self._library, patience.bound(), asking)

            listener.is_granted = await self._ask(token, patience, ask, is_own)
            return listener.is_granted

    async def _ask_and_listen(self, request: tuple[Any, ...], patience: protocol.Patience, listener: Listener) -> Any:
        channel = await listener.subscribed()
        options = patience.notify(NOTIFY_MS, channel, protocol.grace_ms(self.grace))
        reply = await listener.line.execute(*request, *options)
        if isinstance(reply, int) or not options:
            return reply
        fence = await listener.hear(patience.left_ms()) if listener.is_at_the_primary() else None
        if fence is None or listener.trusts_messages:
            return fence
        # Without waiting, and so that the place stays: what says no has not granted it.
        _, _, _, *keep = options
        return await listener.line.execute(*request, *keep)

    async def _abandon_under_way(
        self, token: bytes, before: protocol.Held | None, patience: protocol.Patience, is_own: bool
    ) -> None:
        if self.wait == "notify" and protocol.would_wait(getattr(self.redis, "connection_pool", None)):
            # The request may stand in the line while the pool is full. What goes beside the pool would overtake it.
            line = Listeners.of(self._library, self.redis).line
            if not line.is_idle():
                line.afterwards(partial(self._abandon, token, before, patience))
                return
        # A task of its own goes on when the server is silent, or when this one is cancelled once more.
        abandoning = asyncio.create_task(self._abandon(token, before, patience))
        _abandoning.add(abandoning)
        abandoning.add_done_callback(_forget)
        try:
            await asyncio.wait([abandoning], timeout=protocol.IMPATIENCE)
        finally:
            if not is_own:
                # Later it might release what its owner has acquired by this token meanwhile.
                abandoning.cancel()

    async def locked(self) -> bool:
        """Return whether anybody holds the lock, an old client included."""
        return await self._locked()

    async def owned(self) -> bool:
        """Return whether this lock holds it."""
        return await self._owned()

    async def release(self) -> None:
        """Release the lock. It can be called again when the server has not answered."""
        await self._release()

    async def _release(self) -> None:
        lease = self.local.lease
        if not (lease and self._awaits_renewals()):
            return await super()._release()
        async with lease.renewing:
            await super()._release()

    def _awaits_renewals(self) -> bool:
        """Return whether a renewal that came after a release would prolong what that leaves, or bind a new hold."""
        return bool(self._at_least) or (self._linger is not None and self.wait == "notify")

    async def _renew_once(self, token: bytes, ttl_ms: int, lease: protocol.Lease) -> bool:
        async with lease.renewing:
            return await super()._renew_once(token, ttl_ms, lease)

    async def do_release(self, expected_token: str | bytes) -> None:
        """Release what the token holds."""
        await self._do_release(expected_token)

    async def extend(self, additional_time: float, replace_ttl: bool = False) -> Literal[True]:
        """Extend the hold by so many seconds, from the end of its ttl or from now on."""
        self._check_has_timeout("extend")
        return await self.do_extend(additional_time, replace_ttl)

    async def do_extend(self, additional_time: float, replace_ttl: bool) -> Literal[True]:
        """Extend the hold, by what its ttl is now or from now on."""
        return await self._extend(additional_time, replace_ttl)

    async def reacquire(self) -> Literal[True]:
        """Set the hold's ttl to the lock's timeout again."""
        self._check_has_timeout("reacquire")
        return await self.do_reacquire()

    async def do_reacquire(self) -> Literal[True]:
        """Set the hold's ttl to the lock's timeout again."""
        return await self._reacquire()

    async def exec(self, *command: Any) -> Any:
        """Run a command only if this lock is held, in one step in the server. Return the command's own reply, raw.

        Raise LockNotOwnedError when the lock is lost: then nothing was done.
        """
        return await self._exec(*command)

    async def check(self) -> int | None:
        """Ask the server whether this lock is held now. Return its fence, or None."""
        return await self._check()

    def keep_alive(self) -> KeepAlive:
        """Return a context that renews the hold at a third of its timeout, and cancels its body when it is lost."""
        token, lease = self._held_token("keep alive"), self.local.lease
        fence = self.local.fence if lease else None
        ttl_ms = protocol.lock_ttl_ms(self.timeout)
        not_owned = self._library.not_owned("keep alive", self.name)

        def renew() -> Awaitable[bool]:
            return self._prolong(token, ttl_ms, fence, lease, kept._failed)

        try_again, is_awaited = self._library.try_again_error, self._awaits_renewals()
        kept = KeepAlive(renew, ttl_ms, not_owned, lease, self._linger, try_again, is_awaited)
        return kept

    def _execute(self, *args: Any, **options: Any) -> Awaitable[Any]:
        if self.wait == "notify":
            return Listeners.of(self._library, self.redis).line.execute(*args, **options)
        return self._execute_alone(*args, **options)

    async def _execute_all(self, commands: list[tuple[Any, ...]]) -> list[Any]:
        if self.wait != "notify":
            return await super()._execute_all(commands)
        # Over another connection they might overtake the request whose hold they end.
        replies = await Listeners.of(self._library, self.redis).line.execute_all(commands)
        for reply in replies:
            if isinstance(reply, Exception) and not isinstance(reply, self._library.response_error):
                raise reply
        return replies


# A task that nothing refers to may vanish.
_abandoning: set["asyncio.Task[None]"] = set()


def _forget(abandoning: "asyncio.Task[None]") -> None:
    """Errors are of no interest: the hold ends with its ttl, and the place with its grace."""
    _abandoning.discard(abandoning)
    if not abandoning.cancelled():
        abandoning.exception()


class ReadLock(Lock):
    """A shared lock: any number of readers, and no writer beside them."""

    ACQUIRE = "RWLOCK.RLOCK"
    _modes = SHARED


class WriteLock(Lock):
    """The exclusive lock under the name that goes with `ReadLock`."""

    ACQUIRE = "RWLOCK.WLOCK"


class RWLock:
    """A reader-writer lock: `async with rwlock.read():` and `async with rwlock.write():`."""

    def __init__(self, redis: Any, name: str | bytes, **options: Unpack[protocol.AsyncLockOptions]) -> None:
        """Take the arguments of `Lock`; each side gets them."""
        self._redis = redis
        self._name = name
        self._options = options
        # A wrong client or option is an error here, not later.
        self.read()

    def read(self, **options: Unpack[protocol.AsyncLockOptions]) -> ReadLock:
        """Return a new lock for a reader. Arguments given here go before those of the pair."""
        return ReadLock(self._redis, self._name, **protocol.merged(self._options, options))

    def write(self, **options: Unpack[protocol.AsyncLockOptions]) -> WriteLock:
        """Return a new lock for a writer. Arguments given here go before those of the pair."""
        return WriteLock(self._redis, self._name, **protocol.merged(self._options, options))
