"""The acquire loop: asks until it has the hold, or gives up and leaves nothing behind."""

import contextlib
import math
import os
import random
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from . import fallback
from .driver import DEFAULT_TIMEOUT
from .lease import Clock, Lease, ttl_ms
from .replies import UNKNOWN, Held, Kind, LockCancelledError, word_of
from .steps import IMPATIENCE, Steps
from .telemetry import Span

if TYPE_CHECKING:
    from .core import Core

# The share of the client's socket timeout for which one command waits. The rest is for the way there and back.
SLICE = 0.75
# For how many seconds one command waits by a client that never times out.
LONGEST_SLICE = 30.0
FIRST_PAUSE = 0.05
LONGEST_PAUSE = 0.5
# For how many seconds of failures in a row a request that got no answer is sent again, and for how many where another
# server may take over: of an acquire, and of a release or a renewal.
AWAY = 3.0
FAILOVER = 60.0
FOLLOW = 10.0
# And how often at least: several connections may have fallen silent.
RESENDS = 3


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
        self._late = DEFAULT_TIMEOUT if socket_timeout is None else socket_timeout - self._slice
        self._at_once = socket_timeout or DEFAULT_TIMEOUT
        self._is_roaming = is_roaming
        self._longest_failure = failover if is_roaming else AWAY
        # In a row: refusals, or requests that got no answer. And when the first of these failed.
        self._failures, self._failing_since = 0, math.inf
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
        is_refused = kind is Kind.TEMPORARY
        is_first = not is_refused and self._failing_since == math.inf
        if is_refused:
            # That is an answer.
            self._failing_since = math.inf
        elif is_first:
            self._failures, self._failing_since = 0, now
        self._failures += 1
        pause = min(FIRST_PAUSE * 2.0 ** min(self._failures - 1, 10), LONGEST_PAUSE, left)
        if is_refused:
            return pause if left else None
        self.was_lost = self.was_lost or kind is None
        # A request that does not wait is sent a second time only, because its reply was lost. A silent server would
        # take as long again, unless another one takes over.
        if not left:
            return 0 if is_first and (self._is_roaming or not was_silent) else None
        is_over = now - self._failing_since > self._longest_failure and self._failures > RESENDS
        return None if is_over else pause

    # An answer has come: failures in a row begin anew.
    def answered(self) -> None:
        self._failures, self._failing_since = 0, math.inf

    # There is nothing left to wait for, and no place to give up.
    def ends(self) -> None:
        self._end, self.kept = self._clock(), False


# One call of `acquire`: asks for a token that was passed, or for a new one.
class Attempt:
    # For so many seconds, or for ever when it is None.
    def __init__(self, lock: "Core", seconds: float | None, token: Any, sleep: float) -> None:
        self._lock, self._driver = lock, lock._driver
        self.is_own = token is None
        self.token: bytes = self._driver.encoder(lock.redis).encode(os.urandom(16).hex() if self.is_own else token)
        self.patience = lock._patience(seconds, FAILOVER)
        self.ttl = ttl_ms(lock.timeout or None)
        self.request = lock._request(self.token, self.ttl)
        # What a token that was passed holds already is not of this call: it is left to its owner.
        self.before: Held | None = None
        self._sleep = sleep

    # Return whether it was available in time. It ends the span of the wait.
    def run(self, seen: Span) -> Steps[bool]:
        lock, driver = self._lock, self._driver
        falls_back = lock.fallback and (yield from lock._retrying(self.patience, lock._falls_back))
        if not self.is_own:
            self.before = yield from lock._retrying(self.patience, self._held_before)
        try:
            granted = yield from (self.ask(self._by_set) if falls_back else lock._wait(self))
            if not granted and self.patience.kept:
                with contextlib.suppress(*driver.error):
                    yield from self.abandon()
            elif granted and not self.is_own:
                driver.converted[lock.name, self.token] = lock._kind()
            seen.end(granted)
            return granted
        except GeneratorExit:
            raise
        except BaseException as error:
            # What may just have been granted must not wait for the end of its ttl. After a failure a token that was
            # passed is left as it is: its owner may ask with it.
            if self.is_own or not isinstance(error, driver.error):
                # A server that is silent holds up the caller for so long at most. What is left is done later, but not
                # for a token that was passed: its owner may have acquired again by then.
                hurry = DEFAULT_TIMEOUT if self.is_own else IMPATIENCE
                with contextlib.suppress(*driver.error):
                    yield driver.finish(partial(self.abandon, hurry), self.is_own)
            raise

    # Return what the token holds, of which the user may not be allowed to ask more than whether.
    def _held_before(self) -> Steps[Held | None]:
        lock = self._lock
        try:
            if not any((yield from lock._each("LOCK.CHECK", self.token))):
                return None
            # Of a string there is nothing more to know.
            return UNKNOWN if lock._falls_back_now() else (yield from lock._held(self.token))
        except self._driver.errors.NoPermissionError:
            return UNKNOWN

    # Ask, wait in the server's queue in slices, and ask again with the same token.
    def ask(self, once: Callable[["Attempt"], Steps[int | None]]) -> Steps[bool]:
        lock, patience = self._lock, self.patience
        while True:
            asked = time.monotonic()
            try:
                fence, lease = yield from lock._retrying(patience, self._granted, once)
            except self._driver.errors.ResponseError as error:
                if word_of(error) == "CANCELLED":
                    text = "Unable to acquire lock: the wait was ended by LOCK.CANCEL"
                    raise LockCancelledError(text, lock.name) from error
                if word_of(error) != "WRONGTYPE" or not lock._meets_strings:
                    raise (yield from lock._told(error, lock.ACQUIRE)) from error
                # An old client holds it, by a string.
                fence = None
            if fence is not None:
                lease.fence, hold = fence, lock.local
                hold.token, hold.fence, hold.lease, hold.seen = self.token, fence, lease, Span("hold", lock.name)
                return True
            if not (left_ms := patience.left_ms()):
                return False
            # A null at once is that of a request which has not waited in the server. An old client has no queue there.
            pause = max(0.0, asked + FIRST_PAUSE - time.monotonic())
            if lock._falls_back_now():
                # Not all waiters at the same moment.
                pause = random.uniform(0.5, 1) * self._sleep
            yield self._driver.sleep(min(pause, left_ms / 1000))

    # Return what was granted, and its lease. A grant that came late is renewed, or it is none.
    def _granted(self, once: Callable[["Attempt"], Steps[int | None]]) -> Steps[tuple[int | None, Lease]]:
        lock = self._lock
        lease = lock._lease(self.ttl)
        fence = yield from once(self)
        if fence is not None and not lease.is_fresh():
            lease = lock._lease(self.ttl)
            if not (yield from lock._renew_once(self.token, self.ttl, lease)):
                fence = None
                # The server may still hold it, or some of its keys. What a token held that was passed is its owner's.
                if self.is_own:
                    yield from lock._each("LOCK.RELEASE", self.token)
        return fence, lease

    # Ask by SET NX PX.
    def _by_set(self, _: "Attempt") -> Steps[int | None]:
        lock = self._lock
        # An earlier request of this token may have taken it, whose reply was lost.
        take = ("SET", lock.name, self.token, "NX", "PX", self.ttl)
        keep = fallback.script("LOCK.RENEW", lock.name, self.token, self.ttl)
        return fallback.NO_FENCE if (yield from lock._answers(take, keep))[1] else None

    # See that a request which waits no more has changed nothing, and has left no place in the queue.
    def abandon(self, hurry: float | None = None) -> Steps[None]:
        lock, before = self._lock, self.before
        if before is UNKNOWN:
            # To release might end a hold of before. The place ends with its grace, and a hold with its ttl.
            return
        if before:
            now = yield from lock._held(self.token, hurry=hurry)
            if now and now.fence == before.fence:
                if now.mode == before.mode:
                    if not self.patience.kept or now.mode == "exclusive" or lock.ACQUIRE == "RWLOCK.RLOCK":
                        return
                    # LOCK.RELEASE would end the hold. To ask without waiting ends the place, unless it is granted. To
                    # ask in the mode of before would set the ttl, which the owner may just have renewed, and no LINGER.
                    if (yield from lock._ask(*lock._request(self.token, now.ttl_ms), hurry=hurry)) is None:
                        return
                # It was converted, and nobody knows. Asking in the mode of before converts it back.
                if (yield from lock._ask(*before.again(lock.name, self.token), hurry=hurry)) == before.fence:
                    return
        yield from lock._each("LOCK.RELEASE", self.token, hurry=hurry)
