"""The locks, but for the doing: `lock.py` does it by threads, `asyncio/lock.py` by tasks."""

import contextlib
from threading import local
from typing import Any, ClassVar, Literal

from . import telemetry
from .acquire import FOLLOW, Attempt
from .lease import MAX_TTL_MS, Lease, ttl_ms
from .options import GRACE, LONGEST_GRACE, checked_timeout, is_finite
from .replies import Held, Kind, LockError, LockNotOwnedError, as_map, held, kind_of, word_of
from .sending import Sender, logger


class Hold:
    token: Any = None
    fence: int | None = None
    lease: Lease | None = None
    seen: "telemetry.Span | None" = None


# What a thread holds. Unlike redis-py's it has its defaults in every thread, not only in the one that made it.
class HoldOfThread(Hold, local):
    pass


class Core(Sender):
    """An exclusive lock of either kind."""

    _driver_class: ClassVar[Any]
    _waits: ClassVar[tuple[str, ...]]
    # Whether an old client's string may lie under its key.
    _meets_strings = True

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
        grace: float = GRACE,
        linger: float | None = None,
        at_least: float = 0,
        fallback: bool = False,
        wait: Literal["block", "notify"] = "block",
    ) -> None:
        """Take the arguments of the library's own lock, and options of this package. Times are in seconds.

        The place in the queue outlives a connection that waited there by `grace` seconds: between two slices of a
        wait, or until the client has connected again. If this process dies while it waits, the others
        wait for so long at most when its turn comes. 0 is none.

        With `linger` the hold ends so long after its connection is lost, and not later than before.
        With `at_least` a release ends the hold no sooner than so long after the grant.

        With `fallback` the lock does with SET NX PX on a server that has not loaded the module: it polls every `sleep`
        seconds, and has no fence.

        With `wait="block"` each waiting thread or task occupies a connection. With `wait="notify"`, in asyncio only,
        all the waiting tasks of a client share two: one that hears of their grants, and one for their commands.
        """
        self._driver: Any = self._driver_class.of(redis)
        self.redis = redis
        self.name: Any = name
        self.timeout = checked_timeout(timeout, self._ttl_option)
        self.sleep = sleep
        self.blocking = blocking
        self.blocking_timeout = blocking_timeout
        self.thread_local = bool(thread_local)
        self.raise_on_release_error = raise_on_release_error
        if not (is_finite("grace", grace) and 0 <= grace <= LONGEST_GRACE):
            raise ValueError(f"grace must be from 0 to {LONGEST_GRACE} seconds")
        self.grace = grace
        self._grace_ms = max(int(grace * 1000), 1) if grace else 0
        if linger is not None and not (is_finite("linger", linger) and linger >= 0):
            raise ValueError("linger must be 0 seconds or more")
        self.linger = linger
        if not (is_finite("at_least", at_least) and 0 <= at_least <= (timeout or MAX_TTL_MS / 1000)):
            raise ValueError("at_least must be from 0 to the timeout")
        self.at_least = at_least
        self.fallback = fallback
        if wait not in self._waits:
            raise ValueError(f"wait must be one of {self._waits}")
        self.wait = wait
        # What a request says of its hold beside the ttl.
        self._terms: tuple[Any, ...] = ()
        # The keys that are held: one, but for a MultiLock.
        self._names: tuple[str | bytes, ...] = (name,)
        self.local: Any = HoldOfThread() if self.thread_local else Hold()

    @property
    def fence(self) -> int | None:
        """The number of this hold, larger than any before it: send it with every write.

        None when nothing is held. 0 in the fallback, which has no fences: never send it to a resource.
        """
        fence: int | None = self.local.fence if self.local.token is not None else None
        return fence

    # Give up an attempt although the caller was interrupted. A server that is silent must not hold it up for long.
    async def _hurry(self, attempt: Attempt) -> None:
        raise NotImplementedError

    # Ask until it is granted, or the time is over.
    async def _wait(self, attempt: Attempt) -> bool:
        return await attempt.ask(self._ask_blocking)

    async def _ask_blocking(self, attempt: Attempt) -> Any:
        patience = attempt.patience
        command = (*attempt.request, *patience.block(self._grace_ms))
        how = {"within": patience.within(), "binds": self.linger is not None, "may_wait": True}
        # Not among the commands of others, which it would hold up.
        (reply,) = await Sender._send(self, command, **how)
        if isinstance(reply, Exception):
            raise reply
        return reply

    # Return what tells a hold of this lock from one of another that has the same token.
    def _kind(self) -> tuple[Any, ...]:
        return (self.ACQUIRE, *self._terms)

    def _lease(self, ttl: int) -> Lease:
        return Lease(ttl, self.linger, self._driver.mutex())

    # Return the command that asks for the hold, but for the options about waiting.
    def _request(self, token: bytes, ttl: int) -> tuple[Any, ...]:
        lingers = () if self.linger is None else ("LINGER", min(int(self.linger * 1000), MAX_TTL_MS))
        return (self.ACQUIRE, *self._what(), token, ttl, *self._terms, *lingers)

    def _what(self) -> tuple[Any, ...]:
        return (self.name,)

    def _hold(self, token: bytes, fence: int, lease: Lease) -> None:
        self.local.token, self.local.fence, self.local.lease = token, fence, lease
        self.local.seen = telemetry.hold(self.name)

    def _lose(self) -> None:
        if self.local.seen:
            self.local.seen.end(is_lost=True)

    # What users call.

    async def _enter(self) -> None:
        if not await self._acquire():
            raise LockError("Unable to acquire lock within the time specified", self.name)

    async def _exit(self) -> None:
        try:
            await self._release()
        except LockError:
            if self.raise_on_release_error:
                raise
            logger.warning("Lock was unlocked or no longer owned when exiting context manager.")

    async def _acquire(
        self,
        blocking: bool | None = None,
        blocking_timeout: float | None = None,
        token: str | bytes | None = None,
        sleep: float | None = None,
    ) -> bool:
        """Take the lock and return True, or return False when it was not available in time."""
        blocking = self.blocking if blocking is None else blocking
        timeout = self.blocking_timeout if blocking_timeout is None else blocking_timeout
        with telemetry.wait(self.name) as seen:
            attempt = Attempt(self, timeout if blocking else 0, token, self.sleep if sleep is None else sleep)
            seen.granted = await attempt.run()
        return seen.granted

    async def _do_acquire(self, token: str | bytes) -> bool:
        """Ask once, without waiting."""
        return await self._acquire(blocking=False, token=token)

    async def _locked(self) -> bool:
        """Return whether anybody holds the lock, an old client included."""
        return bool(await self._once_more(self._ask, "EXISTS", *self._names))

    async def _owned(self) -> bool:
        """Return whether this lock holds it."""
        return (await self._fence_now()) is not None

    async def _check(self) -> int | None:
        """Ask the server whether this lock is held now. Return its fence, or None."""
        if self.local.token is not None and await self._falls_back():
            raise self._not_in_the_fallback("check(), which returns a fence,")
        return await self._fence_now()

    async def _fence_now(self) -> int | None:
        if self.local.token is None:
            return None
        fences = await self._fences(self.local.token)
        # All the holds of one grant have one fence.
        return fences[0] if len(set(fences)) == 1 else None

    async def _fences(self, token: Any) -> list[int | None]:
        return await self._once_more(self._each, "LOCK.CHECK", token)

    # Return what the token holds by LOCK.INFO, which a string over a key is not part of.
    async def _held(self, token: bytes, hurry: float | None = None) -> Held | None:
        for name in self._names:
            try:
                info = await self._ask("LOCK.INFO", name, hurry=hurry)
                if len(as_map(info or ()).get(b"holders", ())) < as_map(info or ()).get(b"holder-count", 0):
                    info = await self._ask("LOCK.INFO", name, "HOLDERS", 2**53, "WAITERS", 0, hurry=hurry)
            except self._driver.errors.ResponseError as error:
                if word_of(error) != "WRONGTYPE":
                    raise (await self._told(error, "LOCK.INFO")) from error
            else:
                if now := held(info, token):
                    return now
        return None

    async def _old_client_pttl(self) -> int:
        try:
            pttl: int = await self._ask("PTTL", self.name)
        except self._driver.errors.NoPermissionError:
            return -1
        return pttl

    async def _release(self) -> None:
        """Release the lock. It can be called again when the server has not answered."""
        hold = self.local
        token, lease = hold.token, hold.lease
        if token is None:
            raise LockError("Cannot release a lock that's not owned or is already unlocked.", self.name)
        lasts = lease.left() if lease and not lease.is_released else FOLLOW
        if lease:
            lease.releases()
        try:
            if lease and (self.at_least or self.linger is not None):
                # A renewal that came after this release would prolong what it leaves, or take a hold anew.
                await lease.renewing.alone(self._do_release, token, lasts)
            else:
                await self._do_release(token, lasts)
        except LockNotOwnedError:
            self._forget(token)
            self._lose()
            raise
        # Not before the server has answered: until then it can be called again.
        self._forget(token)
        if hold.seen:
            hold.seen.end()

    def _forget(self, token: Any) -> None:
        self._driver.converted.pop((self.name, token), None)
        # Another thread may have taken the lock meanwhile.
        if self.local.token == token:
            self.local.token = self.local.lease = None

    async def _do_release(self, expected_token: Any, lasts: float = FOLLOW) -> None:
        """Release what the token holds."""
        at_least = ("ATLEAST", ttl_ms(self.at_least)) if self.at_least else ()
        patience = self._patience(lasts)
        replies = await self._retrying(patience, self._each, "LOCK.RELEASE", expected_token, *at_least)
        # The answer to the first try may have got lost.
        if not all(replies) and not (patience.was_lost and patience.left_ms()):
            raise self._not_owned("release")

    def _not_owned(self, doing: str) -> LockNotOwnedError:
        return LockNotOwnedError(f"Cannot {doing} a lock that's no longer owned", self.name)

    # Return the token of a hold, which must be there.
    def _held_token(self, doing: str, needs_timeout: bool = False) -> Any:
        if self.local.token is None:
            raise LockError(f"Cannot {doing} an unlocked lock", self.name)
        if needs_timeout and self.timeout is None:
            raise LockError(f"Cannot {doing} a lock with no timeout", self.name)
        return self.local.token

    async def _extend(self, additional_time: float, replace_ttl: bool = False) -> Literal[True]:
        """Extend the hold by so many seconds, from the end of its ttl or from now on."""
        self._held_token("extend", needs_timeout=True)
        return await self._do_extend(additional_time, replace_ttl)

    async def _do_extend(self, additional_time: float, replace_ttl: bool) -> Literal[True]:
        """Extend the hold, by what its ttl is now or from now on."""
        token = self._held_token("extend")
        left_ms = 0 if replace_ttl else await self._ttl_left_ms(token)
        return await self._renewed("extend", token, ttl_ms(additional_time + left_ms / 1000))

    # Return what is left of the ttl. Nobody but the owner moves it, so it can be asked for before.
    async def _ttl_left_ms(self, token: Any) -> float:
        if await self._owned():
            if not self.ACQUIRE.endswith("RLOCK") and "LIMIT" not in self._terms and "MODES" not in self._terms:
                with contextlib.suppress(self._driver.errors.NoPermissionError):
                    pttl: int = await self._once_more(self._ask, "PTTL", self.name)
                    return max(pttl, 0)
            # The key lives as long as the last of several holds.
            if self.local.lease:
                return float(self.local.lease.left() * 1000)
            if now := await self._held(self._driver.encode(self.redis, token)):
                return now.ttl_ms
        raise self._not_owned("extend")

    async def _reacquire(self) -> Literal[True]:
        """Set the hold's ttl to the lock's timeout again."""
        self._held_token("reacquire", needs_timeout=True)
        return await self._do_reacquire()

    async def _do_reacquire(self) -> Literal[True]:
        """Set the hold's ttl to the lock's timeout again."""
        return await self._renewed("reacquire", self._held_token("reacquire"), ttl_ms(self.timeout or None))

    async def _renewed(self, doing: str, token: Any, ttl: int) -> Literal[True]:
        # A token that the caller has set has no lease.
        lease = self.local.lease or self._lease(ttl)
        fence = self.local.fence if lease is self.local.lease else None
        try:
            if await self._retrying(self._patience(lease.left()), self._renew_once, token, ttl, lease, fence):
                return True
        except self._driver.error as error:
            if lease.left() or not self._driver.is_answer(error) or kind_of(error) is not Kind.TEMPORARY:
                raise
        self._lose()
        raise self._not_owned(doing)

    async def _renew_once(self, token: Any, ttl: int, lease: Lease, fence: int | None = None) -> bool:
        # Over two connections a renewal could overtake another, or a release.
        held: bool = await lease.renewing.alone(self._renew, token, ttl, lease, fence)
        return held

    async def _renew(self, token: Any, ttl: int, lease: Lease, fence: int | None) -> bool:
        # After the lease it would only prolong what somebody else waits for.
        if not lease.left():
            return False
        ends = lease.sends(ttl)
        if not all(await self._each("LOCK.RENEW", token, ttl)):
            return lease.answers(ends, False)
        # What was granted just now is bound already, and a token that the caller has set has another fence.
        is_bound = True if self.linger is None or fence is None else await self._bind(token, ttl, fence)
        return lease.answers(ends, is_bound is not False, is_bound is True)

    # Bind what lingers to a connection that is open. Return False when it is lost, None when nobody knows.
    async def _bind(self, token: Any, ttl: int, fence: int) -> bool | None:
        if self._driver.converted.get((self.name, token), self._kind()) != self._kind():
            # Another lock has converted the hold by this token. To ask in our mode would convert it back.
            return True
        try:
            granted = await self._ask(*self._request(token, ttl), binds=True)
        except self._driver.error as error:
            return False if word_of(error) in ("PARTIAL", "WRONGTYPE") else None
        # Null is no loss: the server has just renewed the hold.
        if granted in (fence, None):
            return granted and True
        # It was lost in between, and nobody knows of the new hold.
        await self._each("LOCK.RELEASE", token)
        return False

    async def _exec(self, *command: Any) -> Any:
        """Run a command only if this lock is held, in one step in the server. Return the command's own reply, raw.

        Raise LockNotOwnedError when the lock is lost: then nothing was done.
        """
        token = self._held_token("run a command under")
        if await self._falls_back():
            raise self._not_in_the_fallback("a guarded command")
        try:
            return await self._ask("LOCK.EXEC", self.name, token, *command, decodes=True)
        except self._driver.errors.ResponseError as error:
            # The command may meet a wrong type, too.
            word = word_of(error)
            if word == "NOTHELD" or (word == "WRONGTYPE" and not await self._owned()):
                raise self._not_owned("run a command under") from error
            raise (await self._told(error, "LOCK.EXEC")) from error
