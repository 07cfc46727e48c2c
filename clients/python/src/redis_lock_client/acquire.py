"""The acquire loop: asks until it has the hold, or gives up and leaves nothing behind.

Steps are generators that yield what is to be done. `lock.run` does it by a thread, `asyncio.lock.run` by a task, and
a test does it by a list of answers.
"""

import contextlib
import math
import os
import random
import time
from collections.abc import Callable, Generator
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from . import fallback
from .lease import Clock, Lease, ttl_ms
from .replies import (
    UNKNOWN,
    Held,
    Kind,
    LockCancelledError,
    LockError,
    UnsupportedError,
    kind_of,
    word_of,
)

if TYPE_CHECKING:
    from .core import Core

T = TypeVar("T")
Steps = Generator[Callable[[], Any], Any, T]

# The share of the client's socket timeout for which one command waits. The rest is for the way there and back.
SLICE = 0.75
# For how many seconds one command waits by a client that never times out, and how late its reply may be.
LONGEST_SLICE = 30.0
LATE = 5.0
# How often in a row a request that got no answer is sent again, some three seconds in all. Silence counts twice.
RESENDS = 6
FIRST_PAUSE = 0.05
LONGEST_PAUSE = 0.5
# For how many seconds of failures in a row it is sent again where another server may take over: of an acquire, and of
# a release or a renewal.
FAILOVER = 60.0
FOLLOW = 10.0
# How often a lock that an old client holds is asked for: it has no queue to stand in.
OLD_CLIENT_PACE_MS = 50
# For how many seconds at most a server that does not answer holds up who gives up.
IMPATIENCE = 2.0


# How long something is still tried, and in what slices.
class Patience:
    # Try for `seconds`, or for ever when it is None, by a client that reads for `socket_timeout` seconds.
    # A client that is roaming finds the server that takes over from one that failed.
    def __init__(
        self,
        seconds: float | None,
        socket_timeout: float | None = None,
        is_roaming: bool = False,
        failover: float = FAILOVER,
        clock: Clock = time.monotonic,
    ) -> None:
        self._clock = clock
        self._end = math.inf if seconds is None else clock() + seconds
        self._slice = LONGEST_SLICE if socket_timeout is None else socket_timeout * SLICE
        self._late = LATE if socket_timeout is None else socket_timeout - self._slice
        self._at_once = socket_timeout or LATE
        self._is_roaming = is_roaming
        self._failover = failover
        self._failures = self._refusals = 0
        self._failing_since = 0.0
        # Whether a request said KEEP: then it may have left a place, which has to be given up.
        self.kept = False
        # Whether an answer got lost: what it was about may have been done.
        self.was_lost = False

    # Return the whole milliseconds that are left, or infinity.
    def left_ms(self) -> float:
        left = self._end - self._clock()
        return left if left == math.inf else max(int(left * 1000), 0)

    # Return within how many seconds the next reply has to come.
    def within(self) -> float:
        left = self.left_ms() / 1000
        return min(left, self._slice) + self._late if left else self._at_once

    # Return the options of the next command that waits: none when nothing is left, because BLOCK 0 has no end.
    def block(self, grace_ms: int) -> tuple[Any, ...]:
        left = self.left_ms()
        return ("BLOCK", max(int(min(left, self._slice * 1000)), 1), *self.keep(grace_ms)) if left else ()

    # Return the option that keeps the place.
    def keep(self, grace_ms: int) -> tuple[Any, ...]:
        self.kept = self.kept or grace_ms > 0
        return ("KEEP", grace_ms) if grace_ms else ()

    # Return the seconds until the same token asks again, None when it should not. Without a kind it got lost.
    def pause(self, kind: Kind | None, was_silent: bool = False) -> float | None:
        now, left = self._clock(), self.left_ms() / 1000
        if kind is Kind.TEMPORARY:
            self._refusals += 1
            return self._growing(self._refusals, LONGEST_PAUSE, left) if left else None
        self.was_lost = self.was_lost or kind is None
        if not self._failures:
            self._failing_since = now
        is_first, self._failures = not self._failures, self._failures + (2 if was_silent else 1)
        # A request that does not wait is sent a second time only, because its reply was lost. A silent server would
        # take as long again, unless another one takes over.
        if not left:
            return 0 if is_first and (self._is_roaming or not was_silent) else None
        if self._is_roaming:
            is_over = now - self._failing_since > self._failover
            return None if is_over else self._growing(self._failures, LONGEST_PAUSE, left)
        return None if self._failures > RESENDS else self._growing(self._failures, math.inf, left)

    @staticmethod
    def _growing(number: int, most: float, left: float) -> float:
        return min(FIRST_PAUSE * 2.0 ** min(number - 1, 10), most, left)

    # An answer has come: failures in a row begin anew.
    def answered(self) -> None:
        self._failures = self._refusals = 0

    # There is nothing left to wait for, and no place to give up.
    def ends(self) -> None:
        self._end, self.kept = self._clock(), False

    # Return the seconds until an old client's lock, which lives for `pttl` ms, is asked for again.
    def pace(self, pttl: int) -> float:
        # PTTL answers -1 for a key without ttl and -2 for one that is gone.
        soonest = OLD_CLIENT_PACE_MS if pttl == -1 else min(max(pttl, 1), OLD_CLIENT_PACE_MS)
        return min(soonest, self.left_ms()) / 1000


# Do it again when an answer got lost, or will be another one in time. The same token gets its own fence.
def retrying(lock: "Core", patience: Patience, make: Callable[[], Steps[T]]) -> Steps[T]:
    driver = lock._driver
    while True:
        try:
            result = yield from make()
        except (LockError, UnsupportedError):
            raise
        except driver.error as error:
            kind = kind_of(error) if driver.is_answer(error) else None
            pause = None
            if kind is not Kind.FINAL:
                pause = patience.pause(kind, isinstance(error, driver.errors.TimeoutError))
            if pause is None:
                raise
        else:
            patience.answered()
            return result
        yield partial(driver.sleep, pause)


# Take the hold for a token that was passed, or for a new one. Return whether it was available in time.
def acquire(lock: "Core", seconds: float | None, token: Any, sleep: float) -> Steps[bool]:
    driver = lock._driver
    key: bytes = os.urandom(16).hex().encode() if token is None else driver.encode(lock.redis, token)
    patience = Patience(seconds, driver.socket_timeout, driver.is_roaming)
    if lock.fallback:
        yield from retrying(lock, patience, lock._falls_back)
    # What a token that was passed holds already is not of this call: it is left to its owner.
    before = None if token is None else (yield from retrying(lock, patience, partial(held_before, lock, key)))
    try:
        if lock.fallback and (yield from lock._falls_back()):
            granted = yield from ask_by_set(lock, key, patience, token is None, sleep)
        else:
            granted = yield from lock._wait(key, patience, before, token is None)
        if not granted and patience.kept:
            with contextlib.suppress(*driver.error):
                yield from abandon(lock, key, before, patience)
        elif granted and token is not None:
            driver.converted[lock.name, key] = lock._kind()
        return granted
    except GeneratorExit:
        raise
    except BaseException as error:
        if not isinstance(error, driver.error):
            # Interrupted or cancelled: what may just have been granted must not wait for the end of its ttl.
            with contextlib.suppress(*driver.error):
                yield partial(lock._hurry, partial(abandon, lock, key, before, patience), token is None)
        elif token is None:
            # Nobody else knows the token. One that was passed is left as it is: its owner may ask again with it.
            with contextlib.suppress(*driver.error):
                yield from lock._each("LOCK.RELEASE", key, hurry=IMPATIENCE)
        raise


# Return what the token holds, of which the user may not be allowed to ask more than whether.
def held_before(lock: "Core", token: bytes) -> Steps[Held | None]:
    try:
        if lock._falls_back_now():
            return Held(0, "exclusive", 1, 0) if (yield from lock._fences(token))[0] is not None else None
        if not any((yield from lock._each("LOCK.CHECK", token))):
            return None
        return (yield from lock._held(token))
    except lock._driver.errors.NoPermissionError:
        return UNKNOWN


# Ask, wait in the server's queue in slices, and ask again with the same token.
def ask(
    lock: "Core", token: bytes, patience: Patience, is_own: bool, once: Callable[[tuple[Any, ...]], Steps[Any]]
) -> Steps[bool]:
    ttl = ttl_ms(lock.timeout or None)
    request = lock._request(token, ttl)
    while True:
        asked = time.monotonic()
        try:
            grant = partial(granted, lock, token, ttl, patience, is_own, partial(once, request))
            fence, lease = yield from retrying(lock, patience, grant)
        except lock._driver.errors.ResponseError as error:
            if word_of(error) == "CANCELLED":
                text = "Unable to acquire lock: the wait was ended by LOCK.CANCEL"
                raise LockCancelledError(text, lock.name) from error
            if word_of(error) != "WRONGTYPE" or not lock._meets_strings:
                raise (yield from lock._told(error, lock.ACQUIRE)) from error
            # An old client holds it, by a string.
            if patience.left_ms() == 0:
                return False
            pttl = yield from retrying(lock, patience, lock._old_client_pttl)
            yield partial(lock._driver.sleep, patience.pace(pttl))
            continue
        if fence:
            lock._hold(token, fence, lease)
            return True
        left_ms = patience.left_ms()
        if left_ms == 0:
            return False
        # A null at once is that of a request which has not waited in the server.
        if time.monotonic() - asked < FIRST_PAUSE:
            yield partial(lock._driver.sleep, min(FIRST_PAUSE, left_ms / 1000))


# Return what was granted, and its lease. A grant that came late is renewed, or it is none.
def granted(
    lock: "Core", token: bytes, ttl: int, patience: Patience, is_own: bool, once: Callable[[], Steps[Any]]
) -> Steps[tuple[Any, Lease]]:
    lease = lock._lease(ttl)
    fence = yield from once()
    if fence and not lease.is_fresh():
        lease = lock._lease(ttl)
        if not (yield from lock._renew_once(token, ttl, lease)):
            fence = None
            # The server may still hold it, or some of its keys. What a token held that was passed is its owner's.
            if is_own:
                with contextlib.suppress(*lock._driver.error):
                    yield from lock._each("LOCK.RELEASE", token)
            # All grants come too late for a ttl of a few milliseconds.
            yield partial(lock._driver.sleep, min(FIRST_PAUSE, patience.left_ms() / 1000))
    return fence, lease


# Ask and poll by SET NX PX.
def ask_by_set(lock: "Core", token: bytes, patience: Patience, is_own: bool, sleep: float) -> Steps[bool]:
    ttl = ttl_ms(lock.timeout or None)
    # At first, and after an error, it may be this token that holds the lock.
    may_be_ours = True

    def once() -> Steps[bool]:
        nonlocal may_be_ours
        looks, may_be_ours = may_be_ours, True
        is_ours = yield from lock._ask("SET", lock.name, token, "NX", "PX", ttl)
        if not is_ours and looks:
            is_ours = yield from lock._ask(*fallback.script("LOCK.RENEW", lock.name, token, ttl))
        may_be_ours = False
        return bool(is_ours)

    while True:
        grant = partial(granted, lock, token, ttl, patience, is_own, once)
        is_ours, lease = yield from retrying(lock, patience, grant)
        if is_ours:
            lock._hold(token, fallback.NO_FENCE, lease)
            return True
        left_ms = patience.left_ms()
        if left_ms == 0:
            return False
        # Not all waiters at the same moment.
        yield partial(lock._driver.sleep, min(random.uniform(0.5, 1) * sleep, left_ms / 1000))


# See that a request which waits no more has changed nothing, and has left no place in the queue.
def abandon(
    lock: "Core", token: bytes, before: Held | None, patience: Patience, hurry: float | None = None
) -> Steps[None]:
    if before is UNKNOWN:
        # To release might end a hold of before. The place ends with its grace, and a hold with its ttl.
        return
    if before and not lock._falls_back_now():
        now = yield from lock._held(token, hurry=hurry)
        if now and now.fence == before.fence:
            if now.mode == before.mode:
                if not patience.kept or before.mode == "exclusive" or lock.ACQUIRE == "RWLOCK.RLOCK":
                    return
                # LOCK.RELEASE would end the hold. To ask without waiting ends the place, unless it is granted.
                if (yield from lock._ask(*lock._request(token, now.ttl_ms), hurry=hurry)) is None:
                    return
            # It was converted, and nobody knows. Asking in the mode of before converts it back.
            if (yield from lock._ask(*before.again(lock.name, token), hurry=hurry)) == before.fence:
                return
    elif before:
        return
    yield from lock._each("LOCK.RELEASE", token, hurry=hurry)
