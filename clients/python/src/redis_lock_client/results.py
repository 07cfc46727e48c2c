"""One client makes a value, and all others that want it wait in the server's queue and get it: LOCK.ONCE."""

import contextlib
import math
import random
import re
import time
from collections.abc import Callable
from typing import Any, TypedDict, Unpack

from .acquire import FAILOVER, Attempt
from .core import Core
from .keeper import KeepAlive
from .lease import ttl_ms
from .lock import Lock, run
from .once import refuse_a_later_result, refuse_what_runs_later
from .options import is_finite
from .replies import FingerprintError, InProgressError, Kind, UnsupportedError, kind_of, word_of
from .sending import logger

__all__ = ["XFetch", "once"]

# A name up to the end of its hash tag, by which a cluster finds the slot.
_TAGGED = re.compile(r"[^{]*\{[^}]+\}")

NEEDS_ONCE = (
    "the server does not know LOCK.ONCE, which this needs and has no fallback for. Load the module redis-lock, from "
    "0.4.0 on, with `loadmodule /path/libredis_lock.so` in the server's configuration, and restart the server"
)


class XFetch:
    """Values are made anew at random times before their end: the nearer it is, and the slower the making, the likelier.

    So the callers of a value do not all find it early at the same moment (Vattani, Chierichetti and Lowenstein, 2015).
    """

    def __init__(self, delta: float | None = None, beta: float = 1.0) -> None:
        """Take the seconds that the making takes, and how eager to be: above 1 is sooner.

        Without `delta` it is measured by the calls that this object is given to. Before the first nothing is early.
        """
        self.delta = delta
        self.beta = beta
        self._measures = delta is None

    # Return how many seconds before its end the value counts as early this time.
    def seconds(self) -> float:
        return -(self.delta or 0.0) * self.beta * math.log(1 - random.random())

    # The making took so many seconds.
    def made_in(self, seconds: float) -> None:
        if self._measures:
            self.delta = seconds


class SharedOptions(TypedDict, total=False):
    """The times of a value in seconds, and how it becomes bytes and is read from them."""

    keep: float
    ttl: float
    wait: float | None
    pack: Callable[[Any], bytes | str] | None
    unpack: Callable[[bytes], Any] | None


class ResultOptions(SharedOptions, total=False):
    """The same, and from how many seconds before its end a value is made anew."""

    early: float | XFetch | None


# Return the key of the lock under which a value is made: in the slot of the value.
def lock_key(name: str | bytes) -> str | bytes:
    if isinstance(name, bytes):
        return str(lock_key(name.decode("latin-1"))).encode("latin-1")
    return f"{name}:once" if _TAGGED.match(name) else f"{{{name}}}:once"


class ResultCore(Core):
    """The lock under which a value is made, and what is known of the value."""

    ACQUIRE = "LOCK.ONCE"
    # No old client locks by this key, and no wait makes a string of what lies under the other.
    _meets_strings = False
    _ttl_option = "ttl"

    # With a mark, values begin with it, and those that begin with another one are refused.
    def __init__(
        self,
        redis: Any,
        name: str | bytes,
        *,
        keep: float = 60,
        early: float | XFetch | None = 10,
        ttl: float = 30,
        wait: float | None = 5,
        pack: Callable[[Any], bytes | str] | None = None,
        unpack: Callable[[bytes], Any] | None = None,
        mark: bytes = b"",
    ) -> None:
        for option, value in (("keep", keep), ("ttl", ttl)):
            if not (is_finite(option, value) and value > 0):
                raise ValueError(f"{option} must be a number of seconds above 0")
        super().__init__(redis, lock_key(name), timeout=ttl, blocking_timeout=wait, thread_local=False)
        seconds = early.seconds() if isinstance(early, XFetch) else early
        if seconds is not None and seconds < 0:
            raise ValueError("early must not be negative")
        self._result = name
        self._keep_ms = ttl_ms(keep)
        # A value must not be early from its first moment on.
        self._early_ms = -1 if seconds is None else int(min(seconds * 1000, self._keep_ms / 2))
        self._terms = () if seconds is None else ("EARLY", self._early_ms)
        self._early, self._pack, self._unpack, self._mark = early, pack, unpack, mark
        self._since = 0.0
        # The value as it is stored, or None.
        self.found: bytes | None = None

    def _what(self) -> tuple[Any, ...]:
        return (self.name, self._result)

    async def _ask_blocking(self, attempt: Attempt) -> int | None:
        reply = await super()._ask_blocking(attempt)
        fence: int | None = reply
        self.found = None
        if isinstance(reply, list):
            self.found, fence = reply
        elif isinstance(reply, bytes):
            self.found, fence = reply, None
            attempt.patience.ends()
        return fence

    async def _told(self, error: Exception, command: str, option: str | None = None) -> Exception:
        told = await super()._told(error, command, option)
        return type(told)(NEEDS_ONCE) if isinstance(told, UnsupportedError) else told

    # Return whether this caller is to make the value. Else it is found. Raise InProgressError when the wait is over.
    async def _look(self) -> bool:
        patience = self._patience(self.blocking_timeout, FAILOVER)
        self.found, pttl = await self._retrying(patience, self._answers, ("GET", self._result), ("PTTL", self._result))
        is_maker = False
        if self.found is not None:
            if 0 <= pttl <= self._early_ms:
                is_maker = await self._ask_early()
        else:
            is_maker = await self._acquire()
        # What was early may be gone meanwhile.
        if not is_maker and self.found is None:
            is_maker = await self._acquire(blocking_timeout=patience.left_ms() / 1000)
        if not is_maker and self.found is None:
            raise InProgressError("Unable to get the value within the time specified: it is being made", self.name)
        self._since = time.monotonic()
        return is_maker

    # Nobody waits because of a value that is there, nor fails.
    async def _ask_early(self) -> bool:
        try:
            return await self._acquire(blocking=False)
        except self._driver.error as error:
            if self._is_final(error):
                raise
            return False

    def _is_final(self, error: Exception) -> bool:
        return self._driver.is_answer(error) and kind_of(error) is Kind.FINAL

    # Store the value and release. One that comes too late is not stored: another caller may have made it since.
    async def _store(self, value: bytes) -> None:
        if isinstance(self._early, XFetch):
            self._early.made_in(time.monotonic() - self._since)
        token, lease, seen = self.local.token, self.local.lease, self.local.seen
        patience = self._patience(lease.left())
        lease.releases()
        save = ("LOCK.EXEC", self.name, token, "SET", self._result, value, "PX", self._keep_ms)
        release = ("LOCK.RELEASE", self.name, token)
        is_lost, failure = False, None
        try:
            await self._retrying(patience, self._answers, save, release)
        except self._driver.error as error:
            is_lost = word_of(error) == "NOTHELD"
            if not is_lost and self._is_final(error):
                failure = await self._told(error, "LOCK.EXEC")
            else:
                # It is a value all the same, for the caller that has made it.
                logger.warning("A value of %r may not be stored: %s", self._result, error)
        self._forget(token)
        if seen:
            seen.end(is_lost=is_lost)
        if failure:
            raise failure

    # What has failed. Return the value of before, which is better than none, or None.
    def _instead(self, error: BaseException) -> bytes | None:
        if self.found is not None and isinstance(error, Exception):
            logger.warning("A new value of %r could not be made: the old one is used", self._result, exc_info=error)
            return self.found
        return None

    # Return the value as bytes.
    def packed(self, value: Any) -> bytes:
        packed = value if self._pack is None else self._pack(value)
        return self._mark + bytes(self._driver.encode(self.redis, packed))

    # Return the value of what is stored.
    def opened(self, stored: bytes) -> Any:
        if not stored.startswith(self._mark):
            raise FingerprintError(f"{self._result!r} was used before, and with other arguments")
        value = stored[len(self._mark) :]
        return self._driver.decode(self.redis, value) if self._unpack is None else self._unpack(value)


# Renews while the maker works.
class Making(KeepAlive):
    _renews_at_once = False


class Result(ResultCore, Lock):
    pass


# Return the value, made by this call or by another one.
def take(result: Result, make: Callable[[], Any]) -> Any:
    if not run(result._look()):
        assert result.found is not None
        return result.opened(result.found)
    try:
        with Making(result):
            made = make()
            refuse_a_later_result(make, made)
            value = result.packed(made)
    except BaseException as error:
        with contextlib.suppress(*result._driver.error):
            result.release()
        if (old := result._instead(error)) is None:
            raise
        return result.opened(old)
    run(result._store(value))
    return result.opened(value)


def once(redis: Any, name: str | bytes, make: Callable[[], Any], **options: Unpack[ResultOptions]) -> Any:
    """Return the value under the key `name`. One of all callers makes it, and the others wait and get it.

    `make()` returns bytes or text, or what `pack` makes bytes or text of. All callers, the maker too, get what
    `unpack` makes of the bytes; without it what the client's GET would return. Times are in seconds.

    The value lives for `keep` seconds (60). A caller that finds it `early` seconds before its end (10, and at most half
    of `keep`) or later makes the next one, while the others use the old one. If it fails, it gets the old one, too.
    `early` can be an `XFetch`, or None for never. A caller waits for `wait` seconds (5; None is for ever) before
    InProgressError, a LockError, is raised. If the process of a maker dies, the next one makes the value after `ttl`
    seconds (30); while the maker works that is renewed.

    An error of `make` goes to its caller, and the next one in the queue makes the value. A maker that has lost its lock
    meanwhile gets its value, which is not stored. A server without LOCK.ONCE raises UnsupportedError or
    ModuleMissingError.
    """
    refuse_what_runs_later(make)
    return take(Result(redis, name, **options), make)
