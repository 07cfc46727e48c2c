"""redis.asyncio.lock.Lock on the commands of the redis-lock module."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, ClassVar, Literal, Self
from uuid import uuid4

import redis.asyncio.lock
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.client import NEVER_DECODE
from redis.exceptions import (
    ConnectionError,
    MaxConnectionsError,
    RedisError,
    ResponseError,
    TimeoutError,
)

from .. import _protocol as protocol
from .._listening import NOTIFY_MS, Listener, Listeners
from .keep_alive import KeepAlive

__all__ = ["Lock", "RWLock", "ReadLock", "WriteLock"]


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
        linger: float | None = None,
        at_least: float = 0,
        wait: Literal["block", "notify"] = "block",
        **kwargs: Any,
    ) -> None:
        """Take the arguments of `redis.asyncio.lock.Lock`, the options of `redis_lock_client.Lock`, and `wait`.

        With `wait="block"` each waiting task occupies a connection. With `wait="notify"` all the waiting tasks of a
        client share two: one that hears of their grants, beside the pool, and one of the pool for their commands.
        """
        super().__init__(redis, name, *args, **kwargs)
        if wait not in ("block", "notify"):
            raise ValueError('wait must be "block" or "notify"')
        self.wait = wait
        self.grace = protocol.checked_grace(grace)
        self._at_least = protocol.at_least(at_least, self.timeout)
        # What a request says of its hold beside the ttl.
        self._terms = protocol.linger(linger)
        # The keys that are held: one, but for a MultiLock.
        self._names: tuple[str | bytes, ...] = (name,)
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
        if self._at_least:
            # An old server would say so at the release, when the work is done. This token holds nothing.
            await self._resending(patience, self._ask_for_at_least)
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

    async def _ask_for_at_least(self) -> None:
        try:
            await self._execute("LOCK.RELEASE", self.name, uuid4().hex, "ATLEAST", 0)
        except ResponseError as error:
            protocol.refuse_what_is_missing(error, "LOCK.RELEASE", ("ATLEAST",))
            if not protocol.is_wrong_type(error):
                raise

    async def do_acquire(self, token: str | bytes) -> bool:
        """Ask once, without waiting."""
        return await self._ask(protocol.encode(self.redis, token), protocol.Patience(0, None))

    async def _ask_or_listen(self, token: bytes, patience: protocol.Patience, is_own: bool) -> bool:
        if self.wait == "block" or patience.left_ms() == 0 or protocol.LACKS.has(self.redis, "NOTIFY"):
            return await self._ask(token, patience)
        keys = [protocol.encode(self.redis, name) for name in self._names]
        with Listeners.of(self.redis).listen(keys, token, is_own) as listener:
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
                return await execute(*self._request(token, ttl), *options)
            options = ("NOTIFY",)
            options = patience.notify(NOTIFY_MS, await listener.subscribed(), grace_ms)
            reply = await listener.line.execute(*self._request(token, ttl), *options)
            return reply if isinstance(reply, int) or not options else await listener.hear(patience.left_ms())

        while True:
            try:
                fence = await self._resending(patience, ask)
            except ResponseError as error:
                protocol.refuse_what_is_missing(error, self.ACQUIRE, self._terms)
                if protocol.LACKS.learn(self.redis, error, options):
                    continue
                if not protocol.is_wrong_type(error):
                    raise
                if patience.left_ms() == 0:
                    return False
                await asyncio.sleep(patience.pace(await self._old_client_pttl()))
                continue
            if fence is not None:
                self.local.token, self.local.fence = token, fence
                if listener:
                    listener.is_granted = True
                return True
            if patience.left_ms() == 0:
                return False

    def _request(self, token: bytes, ttl_ms: int) -> tuple[Any, ...]:
        """Return the command that asks for the hold, but for the options about waiting."""
        return (self.ACQUIRE, self.name, token, ttl_ms, *self._terms)

    async def _old_client_pttl(self) -> int:
        pttl: int = await self._execute("PTTL", self.name)
        return pttl

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
            if now.mode == before.mode:
                if not patience.kept or not before.may_wait_for(self.ACQUIRE):
                    return
                # LOCK.RELEASE would end the hold. To ask without waiting ends the place, unless it is granted.
                if await self._insist(*self._request(token, now.ttl_ms)) is None:
                    return
            # It was converted, and nobody knows. Asking in the mode of before converts it back.
            if await self._insist(*before.again(self.name, token)) == before.fence:
                return
        await self._is_owner("LOCK.RELEASE", token)

    async def _abandon_after(self, error: RedisError, token: bytes) -> None:
        """Give up after an error. Without a connection one attempt is enough: the grace limits what is left behind."""
        if isinstance(error, ResponseError | MaxConnectionsError):
            await self._is_owner("LOCK.RELEASE", token)
        elif pool := getattr(self.redis, "connection_pool", None):
            kwargs = protocol.impatient(pool.connection_kwargs) | {"retry": Retry(NoBackoff(), 0)}
            await self._beside_the_pool(pool, kwargs, [("LOCK.RELEASE", name, token) for name in self._names])

    async def locked(self) -> bool:
        """Return whether anybody holds the lock, an old client included."""
        return bool(await self._execute("EXISTS", self.name))

    async def owned(self) -> bool:
        """Return whether this lock holds it."""
        token = self.local.token
        return token is not None and await self._held(token) is not None

    async def do_release(self, expected_token: str | bytes) -> None:
        """Release what the token holds."""
        if not await self._is_owner("LOCK.RELEASE", expected_token, *self._at_least):
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

    async def exec(self, *command: Any) -> Any:
        """Run a command only if this lock is held, in one step in the server. Return the command's own reply, raw.

        Raise LockNotOwnedError when the lock is lost: then nothing was done.
        """
        token = protocol.held_token(self.local, "run a command under", self.name)
        try:
            return await self._execute_alone("LOCK.EXEC", self.name, token, *command)
        except ResponseError as error:
            protocol.refuse_what_is_missing(error, "LOCK.EXEC")
            # The command may meet a wrong type, too.
            if protocol.is_not_held(error) or (protocol.is_wrong_type(error) and not await self.owned()):
                raise protocol.not_owned("run a command under", self.name) from error
            raise

    async def check(self) -> int | None:
        """Ask the server whether this lock is held now. Return its fence, or None."""
        token = self.local.token
        if token is None:
            return None
        fences = await self._of_all("LOCK.CHECK", token)
        # All the holds of one grant have one fence.
        return fences[0] if len(set(fences)) == 1 else None

    def keep_alive(self) -> KeepAlive:
        """Return a context that renews the hold at a third of its timeout, and cancels its body when it is lost."""
        token = protocol.held_token(self.local, "keep alive", self.name)
        ttl_ms = protocol.lock_ttl_ms(self.timeout)
        return KeepAlive(lambda: self._renew(token, ttl_ms), ttl_ms, self.name)

    async def _renew(self, token: bytes, ttl_ms: int) -> bool:
        return await self._is_owner("LOCK.RENEW", token, ttl_ms)

    async def _held(self, token: bytes) -> protocol.Held | None:
        for name in self._names:
            try:
                info = await self._info(name)
            except ResponseError as error:
                if not protocol.is_wrong_type(error):
                    raise
            else:
                if held := protocol.held(info, token):
                    return held
        return None

    async def _info(self, name: Any) -> Any:
        return await self._execute("LOCK.INFO", name, **{NEVER_DECODE: True})

    async def _is_owner(self, command: str, token: str | bytes, *args: str | int) -> bool:
        return all(await self._of_all(command, token, *args))

    async def _of_all(self, command: str, token: str | bytes, *args: str | int) -> list[int | None]:
        """Return the reply for each key, None where it holds no lock."""
        replies = await self._insist_together([(command, name, token, *args) for name in self._names])
        for at, reply in enumerate(replies):
            if isinstance(reply, ResponseError):
                protocol.refuse_what_is_missing(reply, command, args)
                # A string that was written over the key has ended the hold.
                if not protocol.is_wrong_type(reply):
                    raise reply
                replies[at] = None
        return replies

    async def _insist(self, *args: Any) -> Any:
        (reply,) = await self._insist_together([args])
        if isinstance(reply, ResponseError):
            raise reply
        return reply

    async def _insist_together(self, commands: list[tuple[Any, ...]]) -> list[Any]:
        """Send what ends or prolongs a hold, if need be beside the pool: all of it may be waiting for just this.

        Return the replies and the errors that the server answered. Several commands are one transaction.
        """
        try:
            if len(commands) > 1:
                pipeline = self.redis.pipeline(transaction=True)
                for command in commands:
                    pipeline.execute_command(*command)
                replies: list[Any] = await _cancellable(pipeline.execute(raise_on_error=False))
                return replies
            try:
                return [await self._execute(*commands[0])]
            except ResponseError as error:
                return [error]
        except MaxConnectionsError:
            # A cluster's client has a pool for each node.
            pool = getattr(self.redis, "connection_pool", None)
            if pool is None:
                raise
        return await self._beside_the_pool(pool, pool.connection_kwargs, commands)

    async def _beside_the_pool(self, pool: Any, kwargs: Any, commands: list[tuple[Any, ...]]) -> list[Any]:
        connection = pool.connection_class(**kwargs)
        replies: list[Any] = []
        try:
            for command in commands:
                await _cancellable(connection.send_command(*command))
            for _ in commands:
                try:
                    replies.append(await connection.read_response())
                except ResponseError as error:
                    replies.append(error)
            return replies
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
