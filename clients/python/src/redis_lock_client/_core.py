"""The locks, but for the waiting for an answer: `lock.py` waits with threads, `asyncio/lock.py` with tasks."""

import contextlib
import functools
import os
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from types import SimpleNamespace
from typing import Any, ClassVar, Literal, Self

from . import _fallback
from . import _protocol as protocol
from ._libraries import NEVER_DECODE, Library, LockError, LockNotOwnedError, ModuleMissingError, library_of

# Readers alone, and readers beside permits.
SHARED = ("shared", "counted")


class Core:
    """An exclusive lock of either kind. Its coroutines suspend only where `_settle` and `_sleep` do."""

    # The command that takes the hold.
    ACQUIRE: ClassVar[str] = "LOCK.ACQUIRE"
    # How LOCK.INFO may name a lock with a hold by that command.
    _modes: tuple[str, ...] = ("exclusive",)

    _IS_ASYNC: ClassVar[bool]
    _PACKAGE: ClassVar[str] = "redis_lock_client"

    def __new__(cls, redis: Any, *_: Any, **__: Any) -> Self:
        """Make an object that is a lock of the client's library, too."""
        asked: Any = cls
        made: Self = object.__new__(_class_for(asked, library_of(redis, cls._IS_ASYNC, cls._PACKAGE)))
        return made

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
    ) -> None:
        """Take the arguments of the library's own lock, `grace`, `linger` and `at_least`, in seconds, and `fallback`.

        The place in the queue outlives a connection that waited there by `grace` seconds: between two slices of a
        wait, or until the client has connected again. If this process dies while it waits, the others
        wait for so long at most when its turn comes. 0 is none.

        With `linger` the hold ends so long after the connection that acquired it is lost, and not later than before.
        With `at_least` a release ends the hold no sooner than so long after the grant.

        With `fallback` the lock does with SET NX PX on a server that has not loaded the module: it polls every `sleep`
        seconds, and has no fence.
        """
        self.redis = redis
        self.name: Any = name
        self.timeout = protocol.checked_timeout(timeout)
        self.sleep = sleep
        self.blocking = blocking
        self.blocking_timeout = blocking_timeout
        self.thread_local = bool(thread_local)
        self.raise_on_release_error = raise_on_release_error
        self.grace = protocol.checked_grace(grace)
        self.fallback = fallback
        self._library: Library = library_of(redis, self._IS_ASYNC, self._PACKAGE)
        self._is_roaming = protocol.is_roaming(redis)
        self._at_least = protocol.at_least(at_least, timeout)
        # What a request says of its hold beside the ttl.
        self._terms = protocol.linger(linger)
        self._linger = linger
        # The keys that are held: one, but for a MultiLock.
        self._names: tuple[str | bytes, ...] = (name,)
        self.local: Any = protocol.Hold() if self.thread_local else SimpleNamespace(token=None, fence=None, lease=None)

    @property
    def fence(self) -> int | None:
        """The number of this hold, larger than any before it: send it with every write.

        None when nothing is held. 0 in the fallback, which has no fences: never send it to a resource.
        """
        fence: int | None = self.local.fence if self.local.token is not None else None
        return fence

    @abstractmethod
    async def _settle(self, answer: Any) -> Any:
        """Return what a call of the client's library returned, or what it leads to."""

    @abstractmethod
    async def _pause(self, seconds: float) -> None:
        """Let the time pass."""

    async def _enter(self) -> None:
        if not await self._acquire():
            raise self._library.lock_error("Unable to acquire lock within the time specified", self.name)

    async def _exit(self) -> None:
        try:
            await self._release()
        except self._library.error as error:
            if self.raise_on_release_error or not isinstance(error, LockError):
                raise
            protocol.logger.warning("Lock was unlocked or no longer owned when exiting context manager.")

    async def _acquire(
        self,
        blocking: bool | None = None,
        blocking_timeout: float | None = None,
        token: str | bytes | None = None,
        sleep: float | None = None,
    ) -> bool:
        key = os.urandom(16).hex().encode() if token is None else protocol.encode(self.redis, token)
        if blocking is None:
            blocking = self.blocking
        if blocking_timeout is None:
            blocking_timeout = self.blocking_timeout
        seconds = blocking_timeout if blocking else 0
        timeout = protocol.socket_timeout(self._library, self.redis, self._IS_ASYNC)
        sleep = self.sleep if sleep is None else sleep
        patience = protocol.Patience(seconds, timeout, self._is_roaming, sleep)
        if self.fallback:
            await self._resending(patience, self._falls_back)
        # What a token that was passed holds already is not of this call: it is left to its owner.
        before = None if token is None else await self._resending(patience, lambda: self._held_before(key))
        try:
            granted = await self._ask_patiently(key, patience, before, token is None)
            if not granted and patience.kept:
                with self._suppressed():
                    await self._abandon(key, before, patience)
            return granted
        except (self._library.error, self._library.cluster_exception) as error:
            # Nobody else knows the token. One that was passed is left as it is: its owner may ask again with it.
            if token is None:
                with self._suppressed():
                    await self._abandon_after(error, key)
            raise
        except BaseException:
            # Interrupted or cancelled: what may just have been granted must not wait for the end of its ttl.
            with contextlib.suppress(Exception):
                await self._abandon_under_way(key, before, patience, token is None)
            raise

    async def _held_before(self, token: bytes) -> protocol.Held | None:
        try:
            return await self._held(token)
        except self._library.no_permission_error:
            return protocol.UNKNOWN

    def _suppressed(self) -> "contextlib.suppress":
        return contextlib.suppress(self._library.error, self._library.cluster_exception)

    async def _ask_patiently(
        self, token: bytes, patience: protocol.Patience, before: protocol.Held | None, is_own: bool
    ) -> bool:
        return await self._ask(token, patience, self._ask_once, is_own)

    async def _ask(
        self,
        token: bytes,
        patience: protocol.Patience,
        ask_once: Callable[[tuple[Any, ...], protocol.Patience], Awaitable[Any]],
        is_own: bool = False,
    ) -> bool:
        if self.fallback and await self._falls_back():
            return await self._ask_by_set(token, patience, is_own)
        ttl_ms = protocol.lock_ttl_ms(self.timeout)
        request = self._request(token, ttl_ms)
        while True:
            asked = protocol.now()
            try:
                fence, lease = await self._resending(
                    patience,
                    lambda: self._granted(token, ttl_ms, patience, is_own, lambda: ask_once(request, patience)),
                )
            except self._library.response_error as error:
                if protocol.is_cancelled(error):
                    raise self._library.cancelled(self.name) from error
                self._refuse_the_ttl(error)
                await self._refuse_what_is_missing(error, self.ACQUIRE)
                if protocol.WITHOUT_NOTIFY.learn(self.redis, error):
                    continue
                if not protocol.is_wrong_type(error):
                    raise
                if patience.left_ms() == 0:
                    return False
                pttl = await self._resending(patience, self._old_client_pttl)
                await self._pause(patience.pace(pttl))
                continue
            if fence is not None:
                self.local.token, self.local.fence, self.local.lease = token, fence, lease
                return True
            left_ms = patience.left_ms()
            if left_ms == 0:
                return False
            # A null at once is that of a request which has not waited in the server.
            if protocol.now() - asked < protocol.FIRST_PAUSE:
                await self._pause(min(protocol.FIRST_PAUSE, left_ms / 1000))

    async def _granted(
        self, token: bytes, ttl_ms: int, patience: protocol.Patience, is_own: bool, ask: Callable[[], Awaitable[Any]]
    ) -> tuple[Any, protocol.Lease]:
        """Return what was granted, and its lease. A grant that came late is renewed, or it is none."""
        lease = protocol.Lease(ttl_ms, self._IS_ASYNC)
        granted = await ask()
        if granted and not lease.is_fresh():
            lease = protocol.Lease(ttl_ms, self._IS_ASYNC)
            if not await self._renew_once(token, ttl_ms, lease):
                granted = None
                # The server may still hold it, or some of its keys. What a token held that was passed is its owner's.
                if is_own:
                    with self._suppressed():
                        await self._is_owner("LOCK.RELEASE", token)
                # All grants come too late for a ttl of a few milliseconds.
                await self._pause(min(protocol.FIRST_PAUSE, patience.left_ms() / 1000))
        return granted, lease

    async def _ask_by_set(self, token: bytes, patience: protocol.Patience, is_own: bool) -> bool:
        ttl_ms = protocol.lock_ttl_ms(self.timeout)
        # At first, and after an error, it may be this token that holds the lock.
        may_be_ours = True

        async def ask() -> bool:
            nonlocal may_be_ours
            looks, may_be_ours = may_be_ours, True
            granted = await self._execute("SET", self.name, token, "NX", "PX", ttl_ms)
            if not granted and looks:
                granted = await self._execute(*_fallback.script("LOCK.RENEW", self.name, token, ttl_ms))
            may_be_ours = False
            return bool(granted)

        while True:
            granted, lease = await self._resending(
                patience, lambda: self._granted(token, ttl_ms, patience, is_own, ask)
            )
            if granted:
                self.local.token, self.local.fence, self.local.lease = token, _fallback.NO_FENCE, lease
                return True
            left_ms = patience.left_ms()
            if left_ms == 0:
                return False
            await self._pause(min(_fallback.pause(patience.sleep), left_ms / 1000))

    async def _falls_back(self) -> bool:
        """Return whether the lock has to do without the module. Raise ModuleMissingError when this one cannot."""
        if not self.fallback:
            return False
        falls_back = _fallback.CHOICES.of(self.redis)
        if falls_back is None:
            falls_back = _fallback.CHOICES.make(self.redis, await self._has_no_module())
        if falls_back and (what := self._beyond_the_fallback()):
            raise self._not_in_the_fallback(what)
        return falls_back

    def _beyond_the_fallback(self) -> str | None:
        """Return what of this lock the fallback cannot do, or None."""
        if self._at_least:
            return "at_least"
        if self._terms:
            return "linger"
        return None if self.ACQUIRE == "LOCK.ACQUIRE" else "a lock of readers and writers"

    def _not_in_the_fallback(self, what: str) -> ModuleMissingError:
        return self._library.module_missing(f"{what} is not available in the fallback: {protocol.MODULE_MISSING}")

    async def _ask_once(self, request: tuple[Any, ...], patience: protocol.Patience) -> Any:
        options = patience.block(protocol.grace_ms(self.grace))
        if (seconds := patience.bound()) is not None:
            return await self._execute_within(seconds, *request, *options)
        # What blocks has a connection of its own.
        execute = self._execute_alone if options else self._execute
        return await execute(*request, *options)

    def _request(self, token: bytes, ttl_ms: int) -> tuple[Any, ...]:
        """Return the command that asks for the hold, but for the options about waiting."""
        return (self.ACQUIRE, self.name, token, ttl_ms, *self._terms)

    async def _old_client_pttl(self) -> int:
        try:
            pttl: int = await self._execute("PTTL", self.name)
        except self._library.no_permission_error:
            return -1
        return pttl

    async def _resending(self, patience: protocol.Patience, ask: Callable[[], Awaitable[Any]]) -> Any:
        """Ask again when an answer got lost: the same token gets its own fence if it was granted."""
        failures = 0
        while True:
            try:
                return await ask()
            except (*self._library.faults, *self._library.passing) as error:
                failures += 1
                may = protocol.may_ask_again(self._library, error, self._is_roaming)
                pause = patience.pause(failures, isinstance(error, self._library.timeout_error)) if may else None
                if pause is None:
                    raise
            await self._pause(pause)

    async def _abandon(self, token: bytes, before: protocol.Held | None, patience: protocol.Patience) -> None:
        """See that a request which waits no more has changed nothing, and has left no place in the queue."""
        if before is protocol.UNKNOWN:
            # To release might end a hold of before. The place ends with its grace, and a hold with its ttl.
            return
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

    @abstractmethod
    async def _abandon_under_way(
        self, token: bytes, before: protocol.Held | None, patience: protocol.Patience, is_own: bool
    ) -> None:
        """Abandon a request that may not have been answered, by a server that may be silent."""

    async def _abandon_after(self, error: Exception, token: bytes) -> None:
        """Give up after an error. Without a connection one attempt is enough: the grace limits what is left behind."""
        if isinstance(error, (self._library.response_error, LockError)) or self._library.is_exhausted(error):
            await self._is_owner("LOCK.RELEASE", token)
        elif pool := getattr(self.redis, "connection_pool", None):
            await self._release_impatiently(pool, token)

    async def _release_impatiently(self, pool: Any, token: bytes) -> None:
        kwargs = protocol.impatient(pool.connection_kwargs) | {"retry": self._library.no_retry(self._IS_ASYNC)}
        await self._beside_the_pool(pool, kwargs, self._for_all("LOCK.RELEASE", token))

    async def _locked(self) -> bool:
        try:
            return bool(await self._execute("EXISTS", *self._names))
        except self._library.no_permission_error:
            return any([await self._is_locked(name) for name in self._names])

    async def _is_locked(self, name: Any) -> bool:
        try:
            return protocol.is_held(await self._info(name))
        except self._library.response_error as error:
            if protocol.is_wrong_type(error):
                return True
            raise

    async def _owned(self) -> bool:
        token = self.local.token
        try:
            return token is not None and await self._held(token) is not None
        except self._library.no_permission_error:
            return await self._check() is not None

    async def _release(self) -> None:
        token, lease = self.local.token, self.local.lease
        if token is None:
            raise self._library.lock_error("Cannot release a lock that's not owned or is already unlocked.", self.name)
        self.local.token = self.local.lease = None
        if lease:
            lease.releases()
        try:
            await self._do_release(token)
        except LockNotOwnedError:
            raise
        except BaseException:
            # The server has not answered: it can be called again.
            self.local.token, self.local.lease = token, lease
            raise

    async def _do_release(self, token: str | bytes) -> None:
        if not await self._is_owner("LOCK.RELEASE", token, *self._at_least):
            raise self._library.not_owned("release", self.name)

    def _forget_at_least(self) -> None:
        """Let a release end the hold at once."""
        self._at_least = ()

    def _check_has_timeout(self, doing: str) -> None:
        self._held_token(doing)
        if self.timeout is None:
            raise self._library.lock_error(f"Cannot {doing} a lock with no timeout", self.name)

    async def _extend(self, additional_time: float, replace_ttl: bool) -> Literal[True]:
        token = self._held_token("extend")
        # Two steps are enough: nobody but the owner moves this deadline, so it can only be missed by the time between
        # them, and in the owner's favour. If the hold ends in between, the second says so.
        held = None if replace_ttl else await self._held(token)
        left_ms = held.ttl_ms if held else 0
        if not await self._renew(token, protocol.ttl_ms(additional_time + left_ms / 1000), self.local.lease):
            raise self._library.not_owned("extend", self.name)
        return True

    async def _reacquire(self) -> Literal[True]:
        token = self._held_token("reacquire")
        if not await self._renew(token, protocol.lock_ttl_ms(self.timeout), self.local.lease):
            raise self._library.not_owned("reacquire", self.name)
        return True

    async def _exec(self, *command: Any) -> Any:
        token = self._held_token("run a command under")
        if await self._falls_back():
            raise self._not_in_the_fallback("a guarded command")
        try:
            return await self._execute_alone("LOCK.EXEC", self.name, token, *command)
        except self._library.response_error as error:
            await self._refuse_what_is_missing(error, "LOCK.EXEC")
            # The command may meet a wrong type, too.
            if protocol.is_not_held(error) or (protocol.is_wrong_type(error) and not await self._owned()):
                raise self._library.not_owned("run a command under", self.name) from error
            raise

    async def _check(self) -> int | None:
        token = self.local.token
        if token is None:
            return None
        if await self._falls_back():
            raise self._not_in_the_fallback("check(), which returns a fence,")
        fences = await self._of_all("LOCK.CHECK", token)
        # All the holds of one grant have one fence.
        return fences[0] if len(set(fences)) == 1 else None

    def _held_token(self, doing: str) -> bytes:
        """Return the token of a hold, which must be there."""
        if self.local.token is None:
            raise self._library.lock_error(f"Cannot {doing} an unlocked lock", self.name)
        token: bytes = self.local.token
        return token

    async def _renew(self, token: bytes, ttl_ms: int, lease: protocol.Lease | None) -> bool:
        # A token that the caller has set has no lease.
        lease = lease or protocol.Lease(ttl_ms, self._IS_ASYNC)
        while True:
            try:
                return await self._renew_once(token, ttl_ms, lease)
            except self._library.try_again_error:
                pause = lease.pause_before_asking_again()
            if not pause:
                return False
            await self._pause(pause)

    async def _renew_once(self, token: bytes, ttl_ms: int, lease: protocol.Lease) -> bool:
        # After the lease it would only prolong what somebody else waits for.
        if not lease.left():
            return False
        ends = lease.sends(ttl_ms)
        # What was granted just now is bound already, and a token that the caller has set has another fence.
        fence = self.local.fence if lease is self.local.lease else None
        return lease.answers(ends, await self._prolong(token, ttl_ms, fence, lease))

    async def _prolong(
        self,
        token: bytes,
        ttl_ms: int,
        fence: int | None,
        lease: protocol.Lease | None,
        failed: Callable[[bool], None] | None = None,
    ) -> bool:
        """Renew, and bind what lingers to a connection that is open: the one that it was bound to may be lost."""
        if not await self._is_owner("LOCK.RENEW", token, ttl_ms, failed=failed):
            return False
        if self._linger is None or fence is None or protocol.would_wait(getattr(self.redis, "connection_pool", None)):
            return True
        try:
            held = await self._held_before(token)
            # Another lock may have converted the hold by this token. To ask in our mode would convert it back. Without
            # the right to LOCK.INFO only an exclusive lock asks, which weakens nothing.
            if held and (held.mode or "exclusive") in self._modes:
                # Not beside the pool: that connection would end at once, and the hold after it.
                try:
                    granted = await self._execute(*self._request(token, ttl_ms))
                except self._library.response_error as error:
                    return not (protocol.is_partial(error) or protocol.is_wrong_type(error))
                # Null is no loss: the server has just renewed the hold.
                if granted not in (fence, None):
                    # It was lost in between, and nobody knows of the new hold.
                    await self._is_owner("LOCK.RELEASE", token)
                    return False
        except (self._library.error, self._library.cluster_exception) as error:
            # The renewal counts whatever comes of this, and the next one tries again.
            if lease and self._library.is_of_a_connection(error):
                lease.is_unbound(self._linger)
        return True

    async def _held(self, token: bytes) -> protocol.Held | None:
        if await self._falls_back():
            ttl_ms = await self._execute(*_fallback.script("LOCK.INFO", self.name, token))
            return None if ttl_ms is None else protocol.Held(0, "exclusive", 1, ttl_ms)
        for name in self._names:
            try:
                info = await self._info(name)
            except self._library.response_error as error:
                if not protocol.is_wrong_type(error):
                    raise
            else:
                if held := protocol.held(info, token):
                    return held
        return None

    async def _info(self, name: Any) -> Any:
        try:
            info = await self._execute("LOCK.INFO", name, **{NEVER_DECODE: True})
            if protocol.is_cut(info):
                info = await self._execute("LOCK.INFO", name, "HOLDERS", 2**53, **{NEVER_DECODE: True})
            return info
        except self._library.response_error as error:
            await self._refuse_what_is_missing(error, "LOCK.INFO")
            raise

    async def _is_owner(
        self, command: str, token: str | bytes, *args: str | int, failed: Callable[[bool], None] | None = None
    ) -> bool:
        return all(await self._of_all(command, token, *args, failed=failed))

    async def _of_all(
        self, command: str, token: str | bytes, *args: str | int, failed: Callable[[bool], None] | None = None
    ) -> list[int | None]:
        """Return the reply for each key, None where it holds no lock."""
        if self.fallback:
            await self._falls_back()
        replies = await self._insisting(self._for_all(command, token, *args), failed)
        for at, reply in enumerate(replies):
            if isinstance(reply, Exception) and protocol.is_try_again(self._library, reply):
                raise self._library.try_again_error(str(reply)) from reply
            if isinstance(reply, self._library.response_error):
                self._refuse_the_ttl(reply)
                await self._refuse_what_is_missing(reply, command)
                # A string that was written over the key has ended the hold.
                if not protocol.is_wrong_type(reply):
                    raise reply
                replies[at] = None
        return replies

    def _for_all(self, command: str, token: str | bytes, *args: str | int) -> list[tuple[Any, ...]]:
        if self.fallback and _fallback.CHOICES.of(self.redis):
            return [_fallback.script(command, self.name, token, *args)]
        return [(command, name, token, *args) for name in self._names]

    async def _refuse_what_is_missing(self, error: Exception, command: str) -> None:
        """Raise an error of its own when one says that the server lacks the module or the command."""
        if protocol.unknown_command(error) == command:
            if await self._has_no_module():
                raise self._library.module_missing(protocol.MODULE_MISSING) from error
            raise self._library.not_supported(f"the server does not know {command}") from error

    def _refuse_the_ttl(self, error: Exception) -> None:
        if protocol.is_ttl_too_long(error):
            text = f"timeout (of run_once at_most, of extend the time with what is left) is too long: {error}"
            raise self._library.lock_error(text, self.name) from error

    async def _has_no_module(self) -> bool:
        try:
            await self._execute("LOCK.RELEASE", self.name, os.urandom(16).hex())
        except self._library.response_error as error:
            return protocol.unknown_command(error) is not None
        return False

    async def _insist(self, *args: Any) -> Any:
        (reply,) = await self._insist_together([args])
        if isinstance(reply, self._library.response_error):
            raise reply
        return reply

    async def _insisting(
        self, commands: list[tuple[Any, ...]], failed: Callable[[bool], None] | None = None
    ) -> list[Any]:
        """Send them again where another server may take over. Tell of each failure whether a connection is lost."""
        if not self._is_roaming:
            return await self._insist_once(commands, failed)
        patience = protocol.Patience(protocol.FOLLOW, is_roaming=True)
        replies: list[Any] = await self._resending(patience, lambda: self._insist_once(commands, failed))
        return replies

    async def _insist_once(self, commands: list[tuple[Any, ...]], failed: Callable[[bool], None] | None) -> list[Any]:
        try:
            replies = await self._insist_together(commands)
            for reply in replies if self._is_roaming else ():
                if isinstance(reply, Exception) and protocol.may_ask_again(self._library, reply, True):
                    raise reply
        except Exception as error:
            # A renewal asks again by itself, and nobody has to wait for it between two tries.
            if commands[0][0] == "LOCK.RENEW" and protocol.is_try_again(self._library, error):
                return [error]
            if failed:
                failed(self._library.is_of_a_connection(error))
            raise
        return replies

    async def _insist_together(self, commands: list[tuple[Any, ...]]) -> list[Any]:
        """Send what ends or prolongs a hold, if need be beside the pool: all of it may be waiting for just this.

        Return the replies and the errors that the server answered. Several commands go out together.
        """
        # A cluster's client has a pool for each node.
        pool: Any = getattr(self.redis, "connection_pool", None)
        if protocol.would_wait(pool):
            return await self._beside_the_pool(pool, pool.connection_kwargs, commands)
        try:
            return await self._execute_all(commands)
        except self._library.connection_error as error:
            if pool is None or not self._library.is_exhausted(error):
                raise
        return await self._beside_the_pool(pool, pool.connection_kwargs, commands)

    async def _beside_the_pool(self, pool: Any, kwargs: Any, commands: list[tuple[Any, ...]]) -> list[Any]:
        connection = pool.connection_class(**kwargs)
        replies: list[Any] = []
        try:
            # To send alone would not ask a Sentinel where to.
            await self._settle(connection.connect())
            for command in commands:
                await self._settle(connection.send_command(*command))
            for _ in commands:
                try:
                    replies.append(await self._settle(connection.read_response()))
                except self._library.response_error as error:
                    replies.append(error)
            return replies
        finally:
            await self._settle(connection.disconnect())

    def _execute(self, *args: Any, **options: Any) -> Awaitable[Any]:
        return self._execute_alone(*args, **options)

    async def _execute_all(self, commands: list[tuple[Any, ...]]) -> list[Any]:
        """Send commands together. Return the replies and the errors that the server answered."""
        # Another thread may take the last connection of a pool after any look at it.
        may_wait = not self._IS_ASYNC and hasattr(getattr(self.redis, "connection_pool", None), "timeout")
        try:
            if len(commands) == 1 and not may_wait:
                return [await self._execute(*commands[0])]
            pipeline = self.redis.pipeline(transaction=False)
            if may_wait:
                pipeline.connection_pool = protocol.impatient_pool(pipeline.connection_pool)
            for command in commands:
                pipeline.execute_command(*command)
            replies: list[Any] = await self._answered(pipeline.execute, raise_on_error=False)
            return replies
        except self._library.response_error as error:
            # Of a pipeline: a cluster's client has sent none of them.
            return [error] * len(commands)

    def _execute_alone(self, *args: Any, **options: Any) -> Awaitable[Any]:
        return self._answered(self.redis.execute_command, *args, **options)

    @abstractmethod
    def _execute_within(self, seconds: float, *args: Any) -> Awaitable[Any]:
        """Send a command that may wait. Raise TimeoutError when its reply takes longer."""

    async def _answered(self, send: Callable[..., Any], *args: Any, **options: Any) -> Any:
        try:
            return await self._settle(send(*args, **options))
        except (self._library.error, self._library.cluster_exception) as error:
            if refused := protocol.refused_by_the_client(self._library, error):
                raise refused from error
            raise
        except BaseException:
            self._interrupted()
            raise

    @abstractmethod
    def _interrupted(self) -> None:
        """Clean up after a command that was ended by no reply and by no error of the library."""


class MultiCore(Core):
    """A lock of several keys of either kind."""

    ACQUIRE = "LOCK.MACQUIRE"

    def _beyond_the_fallback(self) -> str:
        return "a lock of several keys"

    def _take_names(self, names: Sequence[str | bytes], shared: Sequence[str | bytes]) -> None:
        self._names = (*names, *shared)
        if protocol.is_cluster(self.redis):
            protocol.check_one_slot([protocol.encode(self.redis, name) for name in self._names])
        self._modes = ("exclusive",) if names else SHARED
        modes = ["EXCLUSIVE"] * len(names) + ["SHARED"] * len(shared)
        self._terms = (*(("MODES", *modes) if shared else ()), *self._terms)

    async def _owned(self) -> bool:
        return await self._check() is not None

    def _request(self, token: bytes, ttl_ms: int) -> tuple[Any, ...]:
        return (self.ACQUIRE, len(self._names), *self._names, token, ttl_ms, *self._terms)

    async def _old_client_pttl(self) -> int:
        # It may be any of the keys that an old client holds.
        return -1


class SemaphoreCore(Core):
    """A lock that several may hold, of either kind."""

    permits: int

    def _beyond_the_fallback(self) -> str:
        return "a semaphore"

    def _take_permits(self, permits: int) -> None:
        self.permits = protocol.checked_permits(permits)
        # The only permit excludes all others.
        self._modes = ("exclusive",) if permits == 1 else ("counted",)
        self._terms = ("LIMIT", permits, *self._terms)

    async def _available(self) -> int:
        await self._falls_back()
        try:
            info = await self._info(self.name)
        except self._library.response_error as error:
            # An old client's lock.
            if protocol.is_wrong_type(error):
                return 0
            raise
        return protocol.available(info, self.permits)

    async def _locked(self) -> bool:
        return await self._available() == 0


@functools.cache
def _class_for(cls: Any, library: Library) -> Any:
    """Return the class that is the library's own lock, too, so that `isinstance` holds."""
    theirs = library.lock_class(cls._IS_ASYNC)
    # The library's may have been replaced by this one.
    if issubclass(cls, theirs) or issubclass(theirs, Core):
        return cls
    return type(cls.__name__, (cls, theirs), {"__module__": cls.__module__, "__doc__": cls.__doc__})
