"""The locks, but for the doing: `lock.py` does these steps by threads, `asyncio/lock.py` by tasks."""

import contextlib
import logging
import math
import os
from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from threading import local
from types import SimpleNamespace
from typing import Any, ClassVar, Literal, TypedDict, Unpack

from . import fallback, telemetry
from .acquire import FOLLOW, Patience, Steps, acquire, ask, retrying
from .driver import slot_of
from .lease import MAX_TTL_MS, TOO_SHORT_TIMEOUT, Lease, ttl_ms
from .replies import (
    MODULE_MISSING,
    Held,
    Kind,
    LockError,
    LockNotOwnedError,
    ModuleMissingError,
    UnsupportedError,
    as_map,
    available,
    held,
    is_unknown_command,
    kind_of,
    word_of,
)

logger = logging.getLogger("redis_lock_client")

# For how many seconds a place in the queue outlives the connection that waited there, and the longest that the module
# takes.
GRACE = 5.0
LONGEST_GRACE = 3600
# What an error about a ttl that is no option's names.
EXTENSION = "the time of extend()"
# The most permits that the module takes.
MOST_PERMITS = 2**31 - 1


class OwnOptions(TypedDict, total=False):
    """Those that django-redis' `cache.lock` does not have."""

    raise_on_release_error: bool
    grace: float
    linger: float | None
    at_least: float
    fallback: bool
    wait: Literal["block", "notify"]


class LockOptions(OwnOptions, total=False):
    """The options that every lock takes."""

    timeout: float | None
    sleep: float
    blocking: bool
    blocking_timeout: float | None
    thread_local: bool


# What a thread holds. Unlike redis-py's it has its defaults in every thread, not only in the one that made it.
class Hold(local):
    token: Any = None
    fence: int | None = None
    lease: Lease | None = None
    seen: "telemetry.Span | None" = None


class Core:
    """An exclusive lock of either kind, as steps."""

    # The command that takes the hold.
    ACQUIRE: ClassVar[str] = "LOCK.ACQUIRE"
    _driver_class: ClassVar[Any]
    _waits: ClassVar[tuple[str, ...]]
    # Whether an old client's string may lie under its key.
    _meets_strings = True
    # The option from which the ttl is.
    _ttl_option = "timeout"

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
        nothing = {"token": None, "fence": None, "lease": None, "seen": None}
        self.local: Any = Hold() if self.thread_local else SimpleNamespace(**nothing)

    @property
    def fence(self) -> int | None:
        """The number of this hold, larger than any before it: send it with every write.

        None when nothing is held. 0 in the fallback, which has no fences: never send it to a resource.
        """
        fence: int | None = self.local.fence if self.local.token is not None else None
        return fence

    @abstractmethod
    def _hurry(self, make: Callable[..., Steps[Any]], is_own: bool) -> Any:
        """Do these steps although the caller was interrupted. A server that is silent must not hold it up for long."""

    @abstractmethod
    def _locked_by(self, mutex: Any, make: Callable[[], Steps[Any]]) -> Any:
        """Do these steps while nobody else has the mutex."""

    # Ask until it is granted, or the time is over.
    def _wait(self, token: bytes, patience: Patience, before: Held | None, is_own: bool) -> Steps[bool]:
        return ask(self, token, patience, is_own, partial(self._ask_blocking, patience=patience))

    def _ask_blocking(self, request: tuple[Any, ...], patience: Patience) -> Steps[Any]:
        command = (*request, *patience.block(self._grace_ms()))
        how = {"within": patience.within(), "binds": self.linger is not None, "may_wait": True}
        (reply,) = yield from Core._send(self, command, **how)
        if isinstance(reply, Exception):
            raise reply
        return reply

    def _grace_ms(self) -> int:
        return max(int(self.grace * 1000), 1) if self.grace else 0

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

    # What sends.

    def _send(self, *commands: tuple[Any, ...], within: float | None = None, **how: Any) -> Steps[list[Any]]:
        within = within or self._driver.patience()
        replies: list[Any] = yield partial(self._driver.send, self.redis, commands, within, **how)
        return replies

    def _ask(self, *command: Any, **how: Any) -> Steps[Any]:
        (reply,) = yield from self._send(command, **how)
        if isinstance(reply, Exception):
            raise reply
        return reply

    # Return the reply for each key, None where it holds no lock.
    def _each(self, command: str, token: Any, *args: Any, **how: Any) -> Steps[list[Any]]:
        if self._falls_back_now():
            commands = [fallback.script(command, self.name, token, *args)]
        else:
            commands = [(command, name, token, *args) for name in self._names]
        replies = yield from self._send(*commands, **how)
        for at, reply in enumerate(replies):
            if isinstance(reply, Exception):
                # A string that was written over the key has ended the hold.
                if word_of(reply) != "WRONGTYPE":
                    extends = command == "LOCK.RENEW" and args[0] != ttl_ms(self.timeout or None)
                    raise (yield from self._told(reply, command, EXTENSION if extends else None)) from reply
                replies[at] = None
        return replies

    # Ask again once when the answer got lost.
    def _once_more(self, make: Callable[[], Steps[Any]]) -> Steps[Any]:
        return retrying(self, Patience(0, is_roaming=self._driver.is_roaming), make)

    # Return the error that the user gets for an answer of the server. A ttl is that of an option, unless told.
    def _told(self, error: Exception, command: str, option: str | None = None) -> Steps[Exception]:
        if "lock.max-ttl" in str(error):
            return LockError(f"{option or self._ttl_option} is too long: {error}", self.name)
        if not isinstance(error, UnsupportedError) and is_unknown_command(error, command):
            if (yield from self._has_no_module()):
                return ModuleMissingError(MODULE_MISSING)
            if command.lower() in str(error).lower():
                return UnsupportedError(f"the server does not know {command}")
        return error

    # Without the module.

    # Return whether the lock has to do without the module. Raise ModuleMissingError when this one cannot.
    def _falls_back(self) -> Steps[bool]:
        driver = self._driver
        if not self.fallback:
            return False
        if driver.falls_back is None:
            lacks_module = yield from self._has_no_module()
            # Another thread or task may have found out meanwhile.
            if driver.falls_back is None:
                driver.falls_back = lacks_module
                if lacks_module:
                    logger.warning(fallback.LOST)
        if driver.falls_back and (what := self._beyond_the_fallback()):
            raise self._not_in_the_fallback(what)
        is_back: bool = driver.falls_back
        return is_back

    def _falls_back_now(self) -> bool:
        return bool(self.fallback and self._driver.falls_back)

    # Return what of this lock the fallback cannot do, or None.
    def _beyond_the_fallback(self) -> str | None:
        beyond = {
            "at_least": bool(self.at_least),
            "linger": self.linger is not None,
            "a lock of readers and writers": self.ACQUIRE.startswith("RWLOCK"),
        }
        return next((what for what, is_asked in beyond.items() if is_asked), None)

    def _not_in_the_fallback(self, what: str) -> ModuleMissingError:
        return ModuleMissingError(f"{what} is not available in the fallback: {MODULE_MISSING}")

    def _has_no_module(self) -> Steps[bool]:
        command = ("LOCK.RELEASE", self.name, os.urandom(16).hex())
        (reply,) = yield from self._send(command)
        if isinstance(reply, Exception) and kind_of(reply) is not Kind.FINAL:
            raise reply
        return isinstance(reply, Exception) and is_unknown_command(reply, command[0])

    # What users call.

    def _enter(self) -> Steps[None]:
        if not (yield from self._acquire()):
            raise LockError("Unable to acquire lock within the time specified", self.name)

    def _exit(self) -> Steps[None]:
        try:
            yield from self._release()
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
        with telemetry.wait(self.name) as seen:
            granted = yield from acquire(
                self, timeout if blocking else 0, token, self.sleep if sleep is None else sleep
            )
            seen.granted = granted
        return granted

    def _do_acquire(self, token: str | bytes) -> Steps[bool]:
        """Ask once, without waiting."""
        return self._acquire(blocking=False, token=token)

    def _locked(self) -> Steps[bool]:
        """Return whether anybody holds the lock, an old client included."""
        return bool((yield from self._once_more(lambda: self._ask("EXISTS", *self._names))))

    def _owned(self) -> Steps[bool]:
        """Return whether this lock holds it."""
        return (yield from self._fence_now()) is not None

    def _check(self) -> Steps[int | None]:
        """Ask the server whether this lock is held now. Return its fence, or None."""
        if self.local.token is not None and (yield from self._falls_back()):
            raise self._not_in_the_fallback("check(), which returns a fence,")
        return (yield from self._fence_now())

    def _fence_now(self) -> Steps[int | None]:
        if self.local.token is None:
            return None
        fences = yield from self._fences(self.local.token)
        # All the holds of one grant have one fence.
        return fences[0] if len(set(fences)) == 1 else None

    def _fences(self, token: Any) -> Steps[list[int | None]]:
        return self._once_more(partial(self._each, "LOCK.CHECK", token))

    # Return what the token holds by LOCK.INFO, which a string over a key is not part of.
    def _held(self, token: bytes, hurry: float | None = None) -> Steps[Held | None]:
        for name in self._names:
            try:
                info = yield from self._ask("LOCK.INFO", name, hurry=hurry)
                if len(as_map(info or ()).get(b"holders", ())) < as_map(info or ()).get(b"holder-count", 0):
                    info = yield from self._ask("LOCK.INFO", name, "HOLDERS", 2**53, "WAITERS", 0, hurry=hurry)
            except self._driver.errors.ResponseError as error:
                if word_of(error) != "WRONGTYPE":
                    raise (yield from self._told(error, "LOCK.INFO")) from error
            else:
                if now := held(info, token):
                    return now
        return None

    def _old_client_pttl(self) -> Steps[int]:
        try:
            pttl: int = yield from self._ask("PTTL", self.name)
        except self._driver.errors.NoPermissionError:
            return -1
        return pttl

    def _release(self) -> Steps[None]:
        """Release the lock. It can be called again when the server has not answered."""
        hold = self.local
        token, lease = hold.token, hold.lease
        if token is None:
            raise LockError("Cannot release a lock that's not owned or is already unlocked.", self.name)
        lasts = lease.left() if lease and not lease.is_released else FOLLOW
        if lease:
            lease.releases()
        make = partial(self._do_release, token, lasts)
        try:
            if lease and (self.at_least or self.linger is not None):
                # A renewal that came after this release would prolong what it leaves, or take a hold anew.
                yield partial(self._locked_by, lease.renewing, make)
            else:
                yield from make()
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

    def _do_release(self, expected_token: Any, lasts: float = FOLLOW) -> Steps[None]:
        """Release what the token holds."""
        at_least = ("ATLEAST", ttl_ms(self.at_least)) if self.at_least else ()
        patience = Patience(lasts, self._driver.socket_timeout, self._driver.is_roaming, FOLLOW)
        replies = yield from retrying(self, patience, partial(self._each, "LOCK.RELEASE", expected_token, *at_least))
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

    def _extend(self, additional_time: float, replace_ttl: bool = False) -> Steps[Literal[True]]:
        """Extend the hold by so many seconds, from the end of its ttl or from now on."""
        self._held_token("extend", needs_timeout=True)
        return self._do_extend(additional_time, replace_ttl)

    def _do_extend(self, additional_time: float, replace_ttl: bool) -> Steps[Literal[True]]:
        """Extend the hold, by what its ttl is now or from now on."""
        token = self._held_token("extend")
        left_ms = 0 if replace_ttl else (yield from self._ttl_left_ms(token))
        return (yield from self._renewed("extend", token, ttl_ms(additional_time + left_ms / 1000)))

    # Return what is left of the ttl. Nobody but the owner moves it, so it can be asked for before.
    def _ttl_left_ms(self, token: Any) -> Steps[float]:
        if (yield from self._owned()):
            if not self.ACQUIRE.endswith("RLOCK") and "LIMIT" not in self._terms and "MODES" not in self._terms:
                with contextlib.suppress(self._driver.errors.NoPermissionError):
                    pttl: int = yield from self._once_more(lambda: self._ask("PTTL", self.name))
                    return max(pttl, 0)
            # The key lives as long as the last of several holds.
            if self.local.lease:
                return float(self.local.lease.left() * 1000)
            if now := (yield from self._held(self._driver.encode(self.redis, token))):
                return now.ttl_ms
        raise self._not_owned("extend")

    def _reacquire(self) -> Steps[Literal[True]]:
        """Set the hold's ttl to the lock's timeout again."""
        self._held_token("reacquire", needs_timeout=True)
        return self._do_reacquire()

    def _do_reacquire(self) -> Steps[Literal[True]]:
        """Set the hold's ttl to the lock's timeout again."""
        return self._renewed("reacquire", self._held_token("reacquire"), ttl_ms(self.timeout or None))

    def _renewed(self, doing: str, token: Any, ttl: int) -> Steps[Literal[True]]:
        # A token that the caller has set has no lease.
        lease = self.local.lease or self._lease(ttl)
        patience = Patience(lease.left(), self._driver.socket_timeout, self._driver.is_roaming, FOLLOW)
        fence = self.local.fence if lease is self.local.lease else None
        try:
            if (yield from retrying(self, patience, partial(self._renew_once, token, ttl, lease, fence))):
                return True
        except self._driver.error as error:
            if lease.left() or not self._driver.is_answer(error) or kind_of(error) is not Kind.TEMPORARY:
                raise
        self._lose()
        raise self._not_owned(doing)

    def _renew_once(self, token: Any, ttl: int, lease: Lease, fence: int | None = None) -> Steps[bool]:
        # Over two connections a renewal could overtake another, or a release.
        result: bool = yield partial(self._locked_by, lease.renewing, partial(self._renew, token, ttl, lease, fence))
        return result

    def _renew(self, token: Any, ttl: int, lease: Lease, fence: int | None) -> Steps[bool]:
        # After the lease it would only prolong what somebody else waits for.
        if not lease.left():
            return False
        ends = lease.sends(ttl)
        if not all((yield from self._each("LOCK.RENEW", token, ttl))):
            return lease.answers(ends, False)
        # What was granted just now is bound already, and a token that the caller has set has another fence.
        is_bound = True if self.linger is None or fence is None else (yield from self._bind(token, ttl, fence))
        return lease.answers(ends, is_bound is not False, is_bound is True)

    # Bind what lingers to a connection that is open. Return False when it is lost, None when nobody knows.
    def _bind(self, token: Any, ttl: int, fence: int) -> Steps[bool | None]:
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

    def _exec(self, *command: Any) -> Steps[Any]:
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
            if word == "NOTHELD" or (word == "WRONGTYPE" and not (yield from self._owned())):
                raise self._not_owned("run a command under") from error
            raise (yield from self._told(error, "LOCK.EXEC")) from error


class MultiCore(Core):
    """A lock of several keys with one fence, taken and released together: `MultiLock(client, ["a", "b"], timeout=30)`.

    While it waits it holds nothing, so multi-locks never wait for one another in a circle. In a cluster all the keys
    need one hash tag. `locked` is about any of the keys, `owned` about all; `exec` is guarded by the first.
    """

    ACQUIRE = "LOCK.MACQUIRE"

    def _beyond_the_fallback(self) -> str:
        return "a lock of several keys"

    def __init__(
        self,
        redis: Any,
        names: Sequence[str | bytes],
        *,
        shared: Sequence[str | bytes] = (),
        **options: Unpack[LockOptions],
    ) -> None:
        """Take the names of the exclusive keys and of the shared ones, then the options of `Lock`."""
        super().__init__(redis, distinct_names(names, shared)[0], **options)
        self._names = (*names, *shared)
        if self._driver.is_cluster:
            check_one_slot([self._driver.encode(self.redis, name) for name in self._names])
        modes = ["EXCLUSIVE"] * len(names) + ["SHARED"] * len(shared)
        self._terms = ("MODES", *modes) if shared else ()

    def _what(self) -> tuple[Any, ...]:
        return (len(self._names), *self._names)

    def _old_client_pttl(self) -> Steps[int]:
        # It may be any of the keys that an old client holds.
        yield from ()
        return -1


class SemaphoreCore(Core):
    """One of at most `permits` holds of a key, with everything that a `Lock` has: each has its own ttl and fence.

    An object is one permit for each thread: `with Semaphore(client, "api", 10, timeout=30) as permit:`. Where
    callers name different numbers, the smallest one counts while its caller holds. `locked` is whether none is free.
    """

    permits: int

    def _beyond_the_fallback(self) -> str:
        return "a semaphore"

    def __init__(self, redis: Any, name: str | bytes, permits: int, **options: Unpack[LockOptions]) -> None:
        """Take the number of permits, then the options of `Lock`."""
        super().__init__(redis, name, **options)
        if not 1 <= permits <= MOST_PERMITS:
            raise ValueError(f"permits must be from 1 to {MOST_PERMITS}")
        self.permits = permits
        self._terms = ("LIMIT", permits)

    def _available(self) -> Steps[int]:
        """Return how many permits nobody holds."""
        yield from self._falls_back()
        try:
            info = yield from self._once_more(lambda: self._ask("LOCK.INFO", self.name, "HOLDERS", 0, "WAITERS", 0))
        except self._driver.errors.ResponseError as error:
            # An old client's lock.
            if word_of(error) == "WRONGTYPE":
                return 0
            raise (yield from self._told(error, "LOCK.INFO")) from error
        return available(info, self.permits)

    def _locked(self) -> Steps[bool]:
        """Return whether no permit is free."""
        return (yield from self._available()) == 0


# Return the names of a multi-lock, the exclusive ones first.
def distinct_names(names: Sequence[str | bytes], shared: Sequence[str | bytes]) -> tuple[str | bytes, ...]:
    if isinstance(names, str | bytes) or isinstance(shared, str | bytes):
        raise TypeError("a multi-lock takes a list of names")
    both = (*names, *shared)
    if not both or len(set(both)) < len(both):
        raise ValueError("a multi-lock takes one name or more, each once")
    return both


# Raise ValueError when the names lie in several slots of a cluster.
def check_one_slot(names: Sequence[bytes]) -> None:
    slots = {name: slot_of(name) for name in names}
    if len(set(slots.values())) > 1:
        where = ", ".join(f"{name!r} in slot {slot}" for name, slot in slots.items())
        raise ValueError(
            f"in a cluster the keys of a multi-lock need one hash tag, as in 'a:{{7}}', 'b:{{7}}': {where}"
        )


# Return whether an option is a finite number.
def is_finite(option: str, seconds: float) -> bool:
    try:
        return math.isfinite(seconds)
    except TypeError:
        raise TypeError(f"{option} must be a number of seconds, not {seconds!r}") from None


# Return a timeout whose lease has an end, and one that has not passed already. 0 is none, as in the libraries.
def checked_timeout(seconds: float | None, option: str) -> float | None:
    if seconds is None:
        return None
    if not is_finite(option, seconds):
        raise ValueError(f"{option} must be a finite number: None is for ever")
    if seconds < 0:
        raise ValueError(f"{option} must not be negative")
    # No grant would come in time, and an acquire would ask without end.
    if 0 < seconds <= TOO_SHORT_TIMEOUT:
        raise ValueError(f"{option} must be above {TOO_SHORT_TIMEOUT} seconds: a lease is shorter by 1 % and 2 ms")
    return seconds


class RWCore:
    """A reader-writer lock: `with rwlock.read():` and `with rwlock.write():`, in asyncio `async with`."""

    _reader: ClassVar[Any]
    _writer: ClassVar[Any]

    def __init__(self, redis: Any, name: str | bytes, **options: Unpack[LockOptions]) -> None:
        """Take the arguments of `Lock`; each side gets them."""
        self._make: Any = lambda kind, more: kind(redis, name, **{**options, **more})
        # A wrong client or option is an error here, not later.
        self._make(self._reader, {})

    def read(self, **options: Unpack[LockOptions]) -> Any:
        """Return a new lock for a reader. Arguments given here go before those of the pair."""
        return self._make(self._reader, options)

    def write(self, **options: Unpack[LockOptions]) -> Any:
        """Return a new lock for a writer. Arguments given here go before those of the pair."""
        return self._make(self._writer, options)
