"""redis.lock.Lock on the commands of the redis-lock module."""

import contextlib
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, ClassVar, Literal, Self
from uuid import uuid4

import redis.lock
from redis.backoff import NoBackoff
from redis.client import NEVER_DECODE
from redis.exceptions import (
    ConnectionError,
    LockNotOwnedError,
    MaxConnectionsError,
    RedisError,
    ResponseError,
    TimeoutError,
)
from redis.retry import Retry

from . import _protocol as protocol
from .keep_alive import KeepAlive

__all__ = ["Lock", "RWLock", "ReadLock", "WriteLock"]


class Lock(redis.lock.Lock):
    """An exclusive lock with the whole interface of `redis.lock.Lock`, which waits in the server's queue.

    What differs: `sleep` is accepted and ignored, for nothing polls; a lock without `timeout` lives for 2^48 ms; and
    the key holds a lock, not a string, so GET answers WRONGTYPE: ask `owned()` and `locked()`.
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
        **kwargs: Any,
    ) -> None:
        """Take the same arguments as `redis.lock.Lock`, and `grace`, `linger` and `at_least`, in seconds.

        The place in the queue outlives a connection that waited there by `grace` seconds: between two slices of a
        wait, or until the client has connected again. If this process dies while it waits, the others
        wait for so long at most when its turn comes. 0 is none.

        With `linger` the hold ends so long after the connection that acquired it is lost, and not later than before.
        With `at_least` a release ends the hold no sooner than so long after the grant.
        """
        super().__init__(redis, name, *args, **kwargs)  # type: ignore[arg-type]
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

    def __enter__(self) -> Self:
        """Acquire, or raise LockError."""
        super().__enter__()
        return self

    def acquire(
        self,
        sleep: float | None = None,
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
            self._resending(patience, self._ask_for_at_least)
        # What a token that was passed holds already is not of this call: it is left to its owner.
        before = None if token is None else self._resending(patience, lambda: self._held(key))
        try:
            granted = self._ask(key, patience)
            if not granted and patience.kept:
                with contextlib.suppress(RedisError):
                    self._abandon(key, before, patience)
            return granted
        except RedisError as error:
            # Nobody else knows the token. One that was passed is left as it is: its owner may ask again with it.
            if token is None:
                with contextlib.suppress(RedisError):
                    self._abandon_after(error, key)
            raise
        except BaseException:
            # Interrupted: what may just have been granted must not wait for the end of its ttl.
            with contextlib.suppress(Exception):
                self._abandon(key, before, patience)
            raise

    def _ask_for_at_least(self) -> None:
        try:
            self.redis.execute_command("LOCK.RELEASE", self.name, uuid4().hex, "ATLEAST", 0)
        except ResponseError as error:
            protocol.refuse_what_is_missing(error, "LOCK.RELEASE", ("ATLEAST",))
            if not protocol.is_wrong_type(error):
                raise

    def do_acquire(self, token: str | bytes) -> bool:
        """Ask once, without waiting."""
        return self._ask(protocol.encode(self.redis, token), protocol.Patience(0, None))

    def _ask(self, token: bytes, patience: protocol.Patience) -> bool:
        ttl = protocol.lock_ttl_ms(self.timeout)

        options: tuple[Any, ...] = ()

        def ask() -> Any:
            nonlocal options
            options = patience.block(protocol.grace_ms(self.redis, self.grace))
            return self.redis.execute_command(*self._request(token, ttl), *options)

        while True:
            try:
                fence = self._resending(patience, ask)
            except ResponseError as error:
                protocol.refuse_what_is_missing(error, self.ACQUIRE, self._terms)
                if protocol.LACKS.learn(self.redis, error, options):
                    continue
                if not protocol.is_wrong_type(error):
                    raise
                if patience.left_ms() == 0:
                    return False
                time.sleep(patience.pace(self._old_client_pttl()))
                continue
            if fence is not None:
                self.local.token, self.local.fence = token, fence
                return True
            if patience.left_ms() == 0:
                return False

    def _request(self, token: bytes, ttl_ms: int) -> tuple[Any, ...]:
        """Return the command that asks for the hold, but for the options about waiting."""
        return (self.ACQUIRE, self.name, token, ttl_ms, *self._terms)

    def _old_client_pttl(self) -> int:
        pttl: int = self.redis.pttl(self.name)
        return pttl

    def _resending(self, patience: protocol.Patience, ask: Callable[[], Any]) -> Any:
        """Ask again when an answer got lost: the same token gets its own fence if it was granted."""
        failures = 0
        while True:
            try:
                return ask()
            except (ConnectionError, TimeoutError, ResponseError) as error:
                failures += 1
                pause = patience.pause(failures) if protocol.may_ask_again(error) else None
                if pause is None:
                    raise
            time.sleep(pause)

    def _abandon(self, token: bytes, before: protocol.Held | None, patience: protocol.Patience) -> None:
        """See that a request which waits no more has changed nothing, and has left no place in the queue."""
        now = self._held(token) if before else None
        if before and now and now.fence == before.fence:
            if now.mode == before.mode:
                if not patience.kept or not before.may_wait_for(self.ACQUIRE):
                    return
                # LOCK.RELEASE would end the hold. To ask without waiting ends the place, unless it is granted.
                if self._insist(*self._request(token, now.ttl_ms)) is None:
                    return
            # It was converted, and nobody knows. Asking in the mode of before converts it back.
            if self._insist(*before.again(self.name, token)) == before.fence:
                return
        self._is_owner("LOCK.RELEASE", token)

    def _abandon_after(self, error: RedisError, token: bytes) -> None:
        """Give up after an error. Without a connection one attempt is enough: the grace limits what is left behind."""
        if isinstance(error, ResponseError | MaxConnectionsError):
            self._is_owner("LOCK.RELEASE", token)
        elif pool := getattr(self.redis, "connection_pool", None):
            kwargs = protocol.impatient(pool.connection_kwargs) | {"retry": Retry(NoBackoff(), 0)}
            self._beside_the_pool(pool, kwargs, [("LOCK.RELEASE", name, token) for name in self._names])

    def locked(self) -> bool:
        """Return whether anybody holds the lock, an old client included."""
        return bool(self.redis.exists(self.name))

    def owned(self) -> bool:
        """Return whether this lock holds it."""
        token = self.local.token
        return token is not None and self._held(token) is not None

    def release(self) -> None:
        """Release the lock. It can be called again when the server has not answered, as redis-py's asyncio lock can."""
        token = self.local.token
        try:
            super().release()
        except LockNotOwnedError:
            raise
        except BaseException:
            self.local.token = token
            raise

    def do_release(self, expected_token: str | bytes) -> None:
        """Release what the token holds."""
        if not self._is_owner("LOCK.RELEASE", expected_token, *self._at_least):
            raise protocol.not_owned("release", self.name)

    def do_extend(self, additional_time: float, replace_ttl: bool) -> Literal[True]:
        """Extend the hold, by what its ttl is now or from now on."""
        token = protocol.held_token(self.local, "extend", self.name)
        # Two steps are enough: nobody but the owner moves this deadline, so it can only be missed by the time between
        # them, and in the owner's favour. If the hold ends in between, the second says so.
        held = None if replace_ttl else self._held(token)
        left_ms = held.ttl_ms if held else 0
        if not self._renew(token, protocol.ttl_ms(additional_time + left_ms / 1000)):
            raise protocol.not_owned("extend", self.name)
        return True

    def do_reacquire(self) -> Literal[True]:
        """Set the hold's ttl to the lock's timeout again."""
        token = protocol.held_token(self.local, "reacquire", self.name)
        if not self._renew(token, protocol.lock_ttl_ms(self.timeout)):
            raise protocol.not_owned("reacquire", self.name)
        return True

    def exec(self, *command: Any) -> Any:
        """Run a command only if this lock is held, in one step in the server. Return the command's own reply, raw.

        Raise LockNotOwnedError when the lock is lost: then nothing was done.
        """
        token = protocol.held_token(self.local, "run a command under", self.name)
        try:
            return self.redis.execute_command("LOCK.EXEC", self.name, token, *command)
        except ResponseError as error:
            protocol.refuse_what_is_missing(error, "LOCK.EXEC")
            # The command may meet a wrong type, too.
            if protocol.is_not_held(error) or (protocol.is_wrong_type(error) and not self.owned()):
                raise protocol.not_owned("run a command under", self.name) from error
            raise

    def check(self) -> int | None:
        """Ask the server whether this lock is held now. Return its fence, or None."""
        token = self.local.token
        if token is None:
            return None
        fences = self._of_all("LOCK.CHECK", token)
        # All the holds of one grant have one fence.
        return fences[0] if len(set(fences)) == 1 else None

    def keep_alive(self, on_lost: Callable[[], object] | None = None) -> KeepAlive:
        """Return a context that renews the hold at a third of its timeout, and calls `on_lost` when it is lost."""
        token = protocol.held_token(self.local, "keep alive", self.name)
        ttl_ms = protocol.lock_ttl_ms(self.timeout)
        return KeepAlive(lambda: self._renew(token, ttl_ms), ttl_ms, self.name, on_lost)

    def _renew(self, token: bytes, ttl_ms: int) -> bool:
        return self._is_owner("LOCK.RENEW", token, ttl_ms)

    def _held(self, token: bytes) -> protocol.Held | None:
        for name in self._names:
            try:
                info = self._info(name)
            except ResponseError as error:
                if not protocol.is_wrong_type(error):
                    raise
            else:
                if held := protocol.held(info, token):
                    return held
        return None

    def _info(self, name: Any) -> Any:
        return self.redis.execute_command("LOCK.INFO", name, **{NEVER_DECODE: True})

    def _is_owner(self, command: str, token: str | bytes, *args: str | int) -> bool:
        return all(self._of_all(command, token, *args))

    def _of_all(self, command: str, token: str | bytes, *args: str | int) -> list[int | None]:
        """Return the reply for each key, None where it holds no lock."""
        replies = self._insist_together([(command, name, token, *args) for name in self._names])
        for at, reply in enumerate(replies):
            if isinstance(reply, ResponseError):
                protocol.refuse_what_is_missing(reply, command, args)
                # A string that was written over the key has ended the hold.
                if not protocol.is_wrong_type(reply):
                    raise reply
                replies[at] = None
        return replies

    def _insist(self, *args: Any) -> Any:
        (reply,) = self._insist_together([args])
        if isinstance(reply, ResponseError):
            raise reply
        return reply

    def _insist_together(self, commands: list[tuple[Any, ...]]) -> list[Any]:
        """Send what ends or prolongs a hold, if need be beside the pool: all of it may be waiting for just this.

        Return the replies and the errors that the server answered. Several commands are one transaction.
        """
        try:
            if len(commands) > 1:
                pipeline = self.redis.pipeline(transaction=True)
                for command in commands:
                    pipeline.execute_command(*command)
                replies: list[Any] = pipeline.execute(raise_on_error=False)
                return replies
            try:
                return [self.redis.execute_command(*commands[0])]
            except ResponseError as error:
                return [error]
        except MaxConnectionsError:
            # A cluster's client has a pool for each node.
            pool = getattr(self.redis, "connection_pool", None)
            if pool is None:
                raise
        return self._beside_the_pool(pool, pool.connection_kwargs, commands)

    def _beside_the_pool(self, pool: Any, kwargs: Any, commands: list[tuple[Any, ...]]) -> list[Any]:
        connection = pool.connection_class(**kwargs)
        replies: list[Any] = []
        try:
            for command in commands:
                connection.send_command(*command)
            for _ in commands:
                try:
                    replies.append(connection.read_response())
                except ResponseError as error:
                    replies.append(error)
            return replies
        finally:
            connection.disconnect()


class ReadLock(Lock):
    """A shared lock: any number of readers, and no writer beside them."""

    ACQUIRE = "RWLOCK.RLOCK"


class WriteLock(Lock):
    """The exclusive lock under the name that goes with `ReadLock`."""

    ACQUIRE = "RWLOCK.WLOCK"


class RWLock:
    """A reader-writer lock: `with rwlock.read():` and `with rwlock.write():`."""

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
