"""The locks, but for the doing: `lock.py` does it by threads, `aio.py` by tasks. See `steps`."""

import contextlib
import functools
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Literal, Self, overload

from .acquire import FOLLOW, Attempt
from .lease import MAX_TTL_MS, Lease, ttl_ms
from .replies import STRING, Held, Kind, LockError, LockNotOwnedError, as_map, held, word_of
from .sending import Sender, logger
from .steps import P, Steps, T, run, run_async
from .telemetry import Span

if TYPE_CHECKING:
    from . import aio, lock


# A method that is written once, by its steps. In asyncio it is a coroutine function.
class Done(Generic[P, T]):
    def __init__(self, steps: Callable[Concatenate[Any, P], Steps[T]]) -> None:
        # No method returns the steps themselves.
        steps.__annotations__.pop("return", None)

        @functools.wraps(steps)
        def of_threads(lock: Any, *args: P.args, **kwargs: P.kwargs) -> T:
            return run(steps(lock, *args, **kwargs))

        @functools.wraps(steps)
        async def of_tasks(lock: Any, *args: P.args, **kwargs: P.kwargs) -> T:
            return await run_async(steps(lock, *args, **kwargs))

        self._methods = of_threads, of_tasks

    @overload
    def __get__(self, lock: "lock.Lock", kind: Any) -> Callable[P, T]: ...
    @overload
    def __get__(self, lock: "aio.Lock", kind: Any) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, lock: Any, kind: Any) -> Any:
        method: Any = self._methods[kind._driver_class.is_async]
        return method.__get__(lock, kind)


# An exclusive lock of either kind.
class Core(Sender):
    @property
    def fence(self) -> int | None:
        """The number of this hold, larger than any before it: send it with every write.

        None when nothing is held. 0 in the fallback, which has no fences: never send it to a resource.
        """
        fence: int | None = self.local.fence if self.local.token is not None else None
        return fence

    # What is asked to take a hold.

    # Ask until it is granted, or the time is over.
    def _wait(self, attempt: Attempt) -> Steps[bool]:
        return attempt.ask(self._ask_blocking)

    def _ask_blocking(self, attempt: Attempt) -> Steps[Any]:
        patience = attempt.patience
        command = (*attempt.request, *patience.block(self._grace_ms))
        how = {"binds": self.linger is not None, "may_wait": patience.left_ms() / 1000}
        return (yield from self._ask(*command, within=patience.within(), **how))

    def _lease(self, ttl: int) -> Lease:
        return Lease(ttl, self.linger, self._driver.mutex())

    # Return the command that asks for the hold, but for the options about waiting.
    def _request(self, token: bytes, ttl: int) -> tuple[Any, ...]:
        lingers = () if self.linger is None else ("LINGER", min(int(self.linger * 1000), MAX_TTL_MS))
        return (self.ACQUIRE, *self._keys, token, ttl, *self._terms, *lingers)

    # Return the reply to LOCK.INFO with so many holders.
    def _info(self, name: Any, holders: int, **how: Any) -> Steps[Mapping[bytes, Any]]:
        try:
            return as_map((yield from self._ask("LOCK.INFO", name, "HOLDERS", holders, "WAITERS", 0, **how)) or ())
        except self._driver.errors.ResponseError as error:
            if word_of(error) != "WRONGTYPE":
                raise (yield from self._told(error, "LOCK.INFO")) from error
            return STRING

    # Return what the token holds by LOCK.INFO.
    def _held(self, token: bytes, **how: Any) -> Steps[Held | None]:
        for name in self._names:
            if now := held((yield from self._info(name, 2**53, **how)), token):
                return now
        return None

    # What users call, and what that is made of.

    def _enter(self) -> Steps[Self]:
        if not (yield from self._acquire()):
            raise LockError("Unable to acquire lock within the time specified", self.name)
        return self

    def _exit(self, *_: object) -> Steps[None]:
        """Release."""
        try:
            yield from self._ends(self._release())
        except LockError:
            if self.raise_on_release_error:
                raise
            logger.warning("Lock was unlocked or no longer owned when exiting context manager.")

    def _acquire(
        self,
        blocking: bool | None = None,
        blocking_timeout: float | None = None,
        token: str | bytes | None = None,
        sleep: float | None = None,
    ) -> Steps[bool]:
        """Take the lock and return True, or return False when it was not available in time."""
        blocking = self.blocking if blocking is None else blocking
        timeout = self.blocking_timeout if blocking_timeout is None else blocking_timeout
        seen = Span("wait", self.name)
        try:
            attempt = Attempt(self, timeout if blocking else 0, token, self.sleep if sleep is None else sleep)
            return (yield from attempt.run(seen))
        except BaseException as error:
            seen.end(error=error)
            raise

    @Done
    def do_acquire(self, token: str | bytes) -> Steps[bool]:
        """Ask once, without waiting."""
        return self._acquire(blocking=False, token=token)

    @Done
    def locked(self) -> Steps[bool]:
        """Return whether anybody holds the lock, an old client included."""
        return bool((yield from self._once_more(self._ask, "EXISTS", *self._names)))

    @Done
    def owned(self) -> Steps[bool]:
        """Return whether this lock holds it."""
        return (yield from self._fence_now()) is not None

    @Done
    def check(self) -> Steps[int | None]:
        """Ask the server whether this lock is held now. Return its fence, or None."""
        if self.local.token is not None and (yield from self._falls_back()):
            raise self._not_in_the_fallback("check(), which returns a fence,")
        return (yield from self._fence_now())

    def _fence_now(self) -> Steps[int | None]:
        if self.local.token is None:
            return None
        fences = yield from self._once_more(self._each, "LOCK.CHECK", self.local.token)
        # All the holds of one grant have one fence.
        return fences[0] if len(set(fences)) == 1 else None

    # Do what ends a hold, which no interrupted caller would repeat.
    def _ends(self, steps: Steps[None]) -> Steps[None]:
        try:
            yield from steps
        except (*self._driver.error, GeneratorExit):
            raise
        except BaseException:
            # It may not have been sent. To do it twice does no harm.
            with contextlib.suppress(*self._driver.error):
                yield self._driver.finish(self._release)
            raise

    @Done
    def release(self) -> Steps[None]:
        """Release the lock, in asyncio also when it is cancelled. It can be called again if nobody has answered."""
        return self._ends(self._release()) if self._driver.is_async else self._release()

    def _release(self) -> Steps[None]:
        # A token that the caller has set has no lease.
        token, lease, seen = self.local.token, self.local.lease or self._lease(int(FOLLOW * 1000)), self.local.seen
        if token is None:
            raise LockError("Cannot release a lock that's not owned or is already unlocked.", self.name)
        lasts = FOLLOW if lease.is_released else lease.left()
        lease.releases()
        try:
            if self.at_least or self.linger is not None:
                # A renewal that came after this release would prolong what it leaves, or take a hold anew.
                yield lease.renewing.alone(self._release_token(token, lasts))
            else:
                yield from self._release_token(token, lasts)
        except LockNotOwnedError:
            self._forget(token, seen, is_lost=True)
            raise
        # Not before the server has answered: until then it can be called again.
        self._forget(token, seen)

    def _forget(self, token: Any, seen: Span | None, is_lost: bool = False) -> None:
        self._driver.converted.pop((self.name, token), None)
        # Another thread may have taken the lock meanwhile.
        if self.local.token == token:
            self.local.token = self.local.lease = None
        if seen:
            seen.end(is_lost=is_lost)

    @Done
    def do_release(self, expected_token: Any) -> Steps[None]:
        """Release what the token holds."""
        return self._release_token(expected_token)

    def _release_token(self, token: Any, lasts: float = FOLLOW) -> Steps[None]:
        at_least = ("ATLEAST", ttl_ms(self.at_least)) if self.at_least else ()
        patience = self._patience(lasts)
        replies = yield from self._retrying(patience, self._each, "LOCK.RELEASE", token, *at_least)
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

    @Done
    def extend(self, additional_time: float, replace_ttl: bool = False) -> Steps[Literal[True]]:
        """Extend the hold by so many seconds, from the end of its ttl or from now on."""
        token = self._held_token("extend", needs_timeout=True)
        left_ms = 0 if replace_ttl else (yield from self._ttl_left_ms(token))
        return (yield from self._renewed("extend", token, ttl_ms(additional_time + left_ms / 1000)))

    do_extend = extend

    # Return what is left of the ttl. Nobody but the owner moves it, so it can be asked for before.
    def _ttl_left_ms(self, token: Any) -> Steps[float]:
        if (yield from self._fence_now()) is not None:
            if not self.ACQUIRE.endswith("RLOCK") and "LIMIT" not in self._terms and "MODES" not in self._terms:
                with contextlib.suppress(self._driver.errors.NoPermissionError):
                    pttl: int = yield from self._once_more(self._ask, "PTTL", self.name)
                    return max(pttl, 0)
            # The key lives as long as the last of several holds.
            if self.local.lease:
                return float(self.local.lease.left() * 1000)
            if now := (yield from self._held(self._driver.encoder(self.redis).encode(token))):
                return now.ttl_ms
        raise self._not_owned("extend")

    @Done
    def reacquire(self) -> Steps[Literal[True]]:
        """Set the hold's ttl to the lock's timeout again."""
        token = self._held_token("reacquire", needs_timeout=True)
        return (yield from self._renewed("reacquire", token, ttl_ms(self.timeout or None)))

    do_reacquire = reacquire

    def _renewed(self, doing: str, token: Any, ttl: int, lease: Lease | None = None) -> Steps[Literal[True]]:
        # A token that the caller has set has no lease.
        lease = lease or self.local.lease or self._lease(ttl)
        try:
            if (yield from self._retrying(self._patience(lease.left()), self._renew_once, token, ttl, lease)):
                return True
        except self._driver.error as error:
            if lease.left() or self._driver.kind_of(error) is not Kind.TEMPORARY:
                raise
        if self.local.seen:
            self.local.seen.end(is_lost=True)
        raise self._not_owned(doing)

    def _renew_once(self, token: Any, ttl: int, lease: Lease) -> Steps[bool]:
        # Over two connections a renewal could overtake another, or a release.
        held: bool = yield lease.renewing.alone(self._renew(token, ttl, lease))
        return held

    def _renew(self, token: Any, ttl: int, lease: Lease) -> Steps[bool]:
        # After the lease it would only prolong what somebody else waits for.
        if not lease.left():
            return False
        ends = lease.sends(ttl)
        if not all((yield from self._each("LOCK.RENEW", token, ttl))):
            return lease.answers(ends, False)
        # What was granted just now is bound already, and a token that the caller has set has another fence.
        binds = self.linger is not None and lease.fence is not None
        is_bound = (yield from self._bind(token, ttl, lease.fence)) if binds else True
        return lease.answers(ends, is_bound is not False, is_bound is True)

    # Bind what lingers to a connection that is open. Return False when it is lost, None when nobody knows.
    def _bind(self, token: Any, ttl: int, fence: int | None) -> Steps[bool | None]:
        if self._driver.converted.get((self.name, token), self._kind()) != self._kind():
            # Another lock has converted the hold by this token. To ask in our mode would convert it back.
            return True
        try:
            granted = yield from self._ask(*self._request(token, ttl), binds=True)
        except self._driver.error as error:
            return False if word_of(error) in ("PARTIAL", "WRONGTYPE") else None
        # Null is no loss: the server has just renewed the hold.
        if granted in (fence, None):
            return granted and True
        # It was lost in between, and nobody knows of the new hold.
        yield from self._each("LOCK.RELEASE", token)
        return False

    @Done
    def exec(self, *command: Any) -> Steps[Any]:
        """Run a command only if this lock is held, in one step in the server. Return the command's own reply, raw.

        Raise LockNotOwnedError when the lock is lost: then nothing was done.
        """
        token = self._held_token("run a command under")
        if (yield from self._falls_back()):
            raise self._not_in_the_fallback("a guarded command")
        try:
            return (yield from self._ask("LOCK.EXEC", self.name, token, *command, decodes=True))
        except self._driver.errors.ResponseError as error:
            # The command may meet a wrong type, too.
            word = word_of(error)
            if word == "NOTHELD" or (word == "WRONGTYPE" and (yield from self._fence_now()) is None):
                raise self._not_owned("run a command under") from error
            raise (yield from self._told(error, "LOCK.EXEC")) from error
