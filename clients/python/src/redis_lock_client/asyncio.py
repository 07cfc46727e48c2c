"""redis.asyncio.lock.Lock on the commands of the redis-lock module."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from types import SimpleNamespace, TracebackType
from typing import Any, ClassVar, Literal, Self
from uuid import uuid4

import redis.asyncio.lock
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.client import NEVER_DECODE
from redis.exceptions import (
    ConnectionError,
    LockError,
    LockNotOwnedError,
    MaxConnectionsError,
    RedisError,
    ResponseError,
    TimeoutError,
)

from . import _protocol as protocol
from ._listening import NOTIFY_MS, Listener, Listeners

__all__ = ["KeepAlive", "Lock", "LockError", "LockNotOwnedError", "RWLock", "ReadLock", "WriteLock"]


class Lock(redis.asyncio.lock.Lock):
    """An exclusive lock with the whole interface of `redis.asyncio.lock.Lock`, which waits in the server's queue.

    What differs is what differs in `redis_lock_client.Lock`. Each task wants a lock object of its own, as with
    redis-py: the token is kept per thread, not per task.
    """

    # The command that takes the hold.
    ACQUIRE: ClassVar[str] = "LOCK.ACQUIRE"

    def __init__(
        self,
        redis: Any,
        name: str | bytes,
        *args: Any,
        grace: float = protocol.GRACE,
        wait: Literal["block", "notify"] = "block",
        **kwargs: Any,
    ) -> None:
        """Take the same arguments as `redis.asyncio.lock.Lock`, `grace` as `redis_lock_client.Lock`, and `wait`.

        With `wait="block"` each waiting task occupies a connection. With `wait="notify"` all the waiting tasks of a
        client share two: one that hears of their grants, beside the pool, and one of the pool for their commands.
        """
        super().__init__(redis, name, *args, **kwargs)
        if wait not in ("block", "notify"):
            raise ValueError('wait must be "block" or "notify"')
        self.wait = wait
        self.grace = protocol.checked_grace(grace)
        self.local: Any = protocol.Hold() if self.thread_local else SimpleNamespace(token=None, fence=None)

    def register_scripts(self) -> None:
        """Do nothing: there are none."""

    @property
    def fence(self) -> int | None:
        """The number of this hold, larger than any before it: send it with every write. None when nothing is held."""
        fence: int | None = self.local.fence if self.local.token is not None else None
        return fence

    async def __aenter__(self) -> Self:
        """Acquire, or raise LockError."""
        await super().__aenter__()  # type: ignore[no-untyped-call]
        return self

    async def acquire(
        self,
        blocking: bool | None = None,
        blocking_timeout: float | None = None,
        token: str | bytes | None = None,
    ) -> bool:
        """Take the lock and return True, or return False when it was not to be had in time."""
        key = uuid4().hex.encode() if token is None else protocol.encode(self.redis, token)
        if blocking is None:
            blocking = self.blocking
        if blocking_timeout is None:
            blocking_timeout = self.blocking_timeout
        patience = protocol.Patience(blocking_timeout if blocking else 0, protocol.socket_timeout(self.redis))
        # What a token that was passed holds already is not of this call: it is left to its owner.
        before = None if token is None else await self._resending(patience, lambda: self._held(key))
        try:
            # A conversion goes ahead of the queue and is rare: it may block a connection.
            granted = await (self._ask(key, patience) if before else self._ask_or_listen(key, patience, token is None))
            if not granted and patience.kept:
                with contextlib.suppress(RedisError):
                    await self._abandon(key, before, patience)
            return granted
        except RedisError as error:
            # Nobody else knows the token. One that was passed is left as it is: its owner may ask again with it.
            if token is None:
                with contextlib.suppress(RedisError):
                    await self._abandon_after(error, key)
            raise
        except BaseException:
            # Cancelled: what may just have been granted must not wait for the end of its ttl.
            with contextlib.suppress(Exception):
                await self._abandon(key, before, patience)
            raise

    async def do_acquire(self, token: str | bytes) -> bool:
        """Ask once, without waiting."""
        return await self._ask(protocol.encode(self.redis, token), protocol.Patience(0, None))

    async def _ask_or_listen(self, token: bytes, patience: protocol.Patience, is_own: bool) -> bool:
        if self.wait == "block" or patience.left_ms() == 0 or protocol.LACKS.has(self.redis, "NOTIFY"):
            return await self._ask(token, patience)
        with Listeners.of(self.redis).listen(protocol.encode(self.redis, self.name), token, is_own) as listener:
            return await self._ask(token, patience, listener)

    async def _ask(self, token: bytes, patience: protocol.Patience, listener: Listener | None = None) -> bool:
        ttl = protocol.lock_ttl_ms(self.timeout)
        options: tuple[Any, ...] = ()

        async def ask() -> Any:
            nonlocal options
            grace_ms = protocol.grace_ms(self.redis, self.grace)
            if listener is None or protocol.LACKS.has(self.redis, "NOTIFY"):
                options = patience.block(grace_ms)
                # What blocks has a connection of its own.
                execute = self._execute_alone if options else self._execute
                return await execute(self.ACQUIRE, self.name, token, ttl, *options)
            options = ("NOTIFY",)
            options = patience.notify(NOTIFY_MS, await listener.subscribed(), grace_ms)
            reply = await listener.line.execute(self.ACQUIRE, self.name, token, ttl, *options)
            return reply if isinstance(reply, int) or not options else await listener.hear(patience.left_ms())

        while True:
            try:
                fence = await self._resending(patience, ask)
            except ResponseError as error:
                if protocol.LACKS.learn(self.redis, error, options):
                    continue
                if not protocol.is_wrong_type(error):
                    raise
                if patience.left_ms() == 0:
                    return False
                await asyncio.sleep(patience.pace(await self._execute("PTTL", self.name)))
                continue
            if fence is not None:
                self.local.token, self.local.fence = token, fence
                if listener:
                    listener.is_granted = True
                return True
            if patience.left_ms() == 0:
                return False

    async def _resending(self, patience: protocol.Patience, ask: Callable[[], Awaitable[Any]]) -> Any:
        """Ask again when an answer got lost: the same token gets its own fence if it was granted."""
        failures = 0
        while True:
            try:
                return await ask()
            except (ConnectionError, TimeoutError, ResponseError) as error:
                failures += 1
                pause = patience.pause(failures) if protocol.may_ask_again(error) else None
                if pause is None:
                    raise
            await asyncio.sleep(pause)

    async def _abandon(self, token: bytes, before: protocol.Held | None, patience: protocol.Patience) -> None:
        """See that a request which waits no more has changed nothing, and has left no place in the queue."""
        now = await self._held(token) if before else None
        if before and now and now.fence == before.fence:
            if now.shared == before.shared:
                if not patience.kept or not before.is_upgraded_by(self.ACQUIRE):
                    return
                # LOCK.RELEASE would end the hold. To ask without waiting ends the place, unless it is granted.
                if await self._insist(self.ACQUIRE, self.name, token, now.ttl_ms) is None:
                    return
            # It was converted, and nobody knows. Asking in the mode of before converts it back.
            if await self._insist(before.acquire, self.name, token, before.ttl_ms) == before.fence:
                return
        await self._is_owner("LOCK.RELEASE", token)

    async def _abandon_after(self, error: RedisError, token: bytes) -> None:
        """Give up after an error. Without a connection one attempt is enough: the grace limits what is left behind."""
        if isinstance(error, ResponseError | MaxConnectionsError):
            await self._is_owner("LOCK.RELEASE", token)
        elif pool := getattr(self.redis, "connection_pool", None):
            kwargs = protocol.impatient(pool.connection_kwargs) | {"retry": Retry(NoBackoff(), 0)}
            await self._beside_the_pool(pool, kwargs, "LOCK.RELEASE", self.name, token)

    async def locked(self) -> bool:
        """Return whether anybody holds the lock, an old client included."""
        return bool(await self._execute("EXISTS", self.name))

    async def owned(self) -> bool:
        """Return whether this lock holds it."""
        token = self.local.token
        return token is not None and await self._held(token) is not None

    async def do_release(self, expected_token: str | bytes) -> None:
        """Release what the token holds."""
        if not await self._is_owner("LOCK.RELEASE", expected_token):
            raise protocol.not_owned("release", self.name)

    async def do_extend(self, additional_time: float, replace_ttl: bool) -> Literal[True]:
        """Extend the hold, by what its ttl is now or from now on."""
        token = protocol.held_token(self.local, "extend", self.name)
        # Two steps, as in the sync lock, and as harmless.
        held = None if replace_ttl else await self._held(token)
        left_ms = held.ttl_ms if held else 0
        if not await self._renew(token, protocol.ttl_ms(additional_time + left_ms / 1000)):
            raise protocol.not_owned("extend", self.name)
        return True

    async def do_reacquire(self) -> Literal[True]:
        """Set the hold's ttl to the lock's timeout again."""
        token = protocol.held_token(self.local, "reacquire", self.name)
        if not await self._renew(token, protocol.lock_ttl_ms(self.timeout)):
            raise protocol.not_owned("reacquire", self.name)
        return True

    def keep_alive(self) -> "KeepAlive":
        """Return a context that renews the hold at a third of its timeout, and cancels its body when it is lost."""
        token = protocol.held_token(self.local, "keep alive", self.name)
        ttl_ms = protocol.lock_ttl_ms(self.timeout)
        return KeepAlive(lambda: self._renew(token, ttl_ms), ttl_ms, self.name)

    async def _renew(self, token: bytes, ttl_ms: int) -> bool:
        return await self._is_owner("LOCK.RENEW", token, ttl_ms)

    async def _held(self, token: bytes) -> protocol.Held | None:
        try:
            info = await self._execute("LOCK.INFO", self.name, **{NEVER_DECODE: True})
        except ResponseError as error:
            if protocol.is_wrong_type(error):
                return None
            raise
        return protocol.held(info, token)

    async def _is_owner(self, command: str, token: str | bytes, *args: int) -> bool:
        try:
            return bool(await self._insist(command, self.name, token, *args))
        except ResponseError as error:
            # Whoever wrote a string over the key has ended the hold.
            if protocol.is_wrong_type(error):
                return False
            raise

    async def _insist(self, *args: Any) -> Any:
        """Send what ends or prolongs a hold, if need be beside the pool: all of it may be waiting for just this."""
        try:
            return await self._execute(*args)
        except MaxConnectionsError:
            # A cluster's client has a pool for each node.
            pool = getattr(self.redis, "connection_pool", None)
            if pool is None:
                raise
        return await self._beside_the_pool(pool, pool.connection_kwargs, *args)

    async def _beside_the_pool(self, pool: Any, kwargs: Any, *args: Any) -> Any:
        connection = pool.connection_class(**kwargs)
        try:
            await _cancellable(connection.send_command(*args))
            return await connection.read_response()
        finally:
            await connection.disconnect()

    async def _execute(self, *args: Any, **options: Any) -> Any:
        if self.wait == "notify":
            return await Listeners.of(self.redis).line.execute(*args, **options)
        return await self._execute_alone(*args, **options)

    async def _execute_alone(self, *args: Any, **options: Any) -> Any:
        return await _cancellable(self.redis.execute_command(*args, **options))


async def _cancellable(sending: Awaitable[Any]) -> Any:
    """Before Python 3.12 asyncio.wait_for, which redis-py sends by, may swallow a cancellation. It is not forgotten."""
    task = asyncio.current_task()
    cancelled_before = task.cancelling() if task else 0
    reply = await sending
    if task and task.cancelling() > cancelled_before:
        raise asyncio.CancelledError
    return reply


class KeepAlive:
    """Renews a hold at a third of its ttl until the context ends.

    When a renewal answers that nothing is held, or none has succeeded by the end of the lease, the body is cancelled at
    its next await, and the context raises LockNotOwnedError. The lease is counted by this process's clock from before a
    renewal was sent, so it ends here before it ends in the server.
    """

    def __init__(self, renew: Callable[[], Awaitable[bool]], ttl_ms: int, name: object) -> None:
        """Renew by `renew`, which returns whether anything was held. Use `Lock.keep_alive`."""
        self.lost = False
        self._over = False
        self._renew = renew
        self._ttl = ttl_ms / 1000
        self._name = name
        self._clock: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> Self:
        """Renew once, for only then it is known how long the lease is. Raise LockNotOwnedError when it is over."""
        if not await self._renewed():
            raise protocol.not_owned("keep alive", self._name)
        body = asyncio.current_task()
        assert body is not None  # Whoever awaits this is a task.
        self._body, self._cancelling = body, body.cancelling()
        self._renewing = asyncio.create_task(self._keep_renewing())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop renewing. Nothing is released."""
        self._stop()
        if not self.lost:
            return
        if kind is None:
            # The body came to its end before the cancellation came to it.
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0)
        # As asyncio.timeout does: only a cancellation of our own becomes an error, one from outside goes on.
        from_outside = self._body.uncancel() > self._cancelling
        if kind is None or (kind is asyncio.CancelledError and not from_outside):
            raise protocol.not_owned("keep alive", self._name) from error

    async def _renewed(self) -> bool:
        loop = asyncio.get_running_loop()
        sent = loop.time()
        if not await self._renew():
            return False
        if not self._over:
            if self._clock:
                self._clock.cancel()
            # Not the renewing task's to keep: a renewal may hang for longer than the lease lasts.
            self._clock = loop.call_at(sent + self._ttl, self._lose)
        return True

    async def _keep_renewing(self) -> None:
        pause = self._ttl / 3
        while not self._over:
            await asyncio.sleep(pause)
            try:
                if not await self._renewed():
                    return self._lose()
                pause = self._ttl / 3
            except Exception:
                # Whatever it was, the clock goes on. Sooner than usual, for the rest of the lease is short.
                pause = self._ttl / 10

    def _lose(self) -> None:
        if not self._over:
            self._stop()
            self.lost = True
            self._body.cancel()

    def _stop(self) -> None:
        # A renewal under way ends as it likes; it is of no interest any more.
        self._over = True
        self._renewing.cancel()
        if self._clock:
            self._clock.cancel()


class ReadLock(Lock):
    """A shared lock: any number of readers, and no writer beside them."""

    ACQUIRE = "RWLOCK.RLOCK"


class WriteLock(Lock):
    """The exclusive lock under the name that goes with `ReadLock`."""

    ACQUIRE = "RWLOCK.WLOCK"


class RWLock:
    """A reader-writer lock: `async with rwlock.read():` and `async with rwlock.write():`."""

    def __init__(self, redis: Any, name: str | bytes, **kwargs: Any) -> None:
        """Take the arguments of `Lock`; each side gets them."""
        self._args = (redis, name)
        self._kwargs = kwargs

    def read(self, **kwargs: Any) -> ReadLock:
        """Return a new lock for a reader. Arguments given here go before those of the pair."""
        return ReadLock(*self._args, **(self._kwargs | kwargs))

    def write(self, **kwargs: Any) -> WriteLock:
        """Return a new lock for a writer. Arguments given here go before those of the pair."""
        return WriteLock(*self._args, **(self._kwargs | kwargs))
