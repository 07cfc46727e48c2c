"""Until when a hold lasts by this process's clock. Nothing here does I/O, and each clock can be another one."""

import math
import time
from collections.abc import Callable
from typing import Any

from .steps import Mutex

# The longest hold that the module grants, some 8,900 years: what a lock without timeout gets.
MAX_TTL_MS = 2**48
# Of this timeout, in seconds, a lease leaves one millisecond.
TOO_SHORT_TIMEOUT = 0.003

# In a suspended machine the hold goes on to its end. On macOS time.monotonic() stands still then,
# and CLOCK_MONOTONIC does not.
CLOCK = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))

Clock = Callable[[], float]


# Return the seconds of a clock that goes on while the machine is suspended, where there is one.
def now() -> float:
    return time.monotonic() if CLOCK is None else time.clock_gettime(CLOCK)


# Return when a time is over that the server counts from `start` on: clocks differ in speed.
def surely(start: float, seconds: float) -> float:
    return start + seconds * 0.99 - 0.002


# Return the ttl as the module takes it. Without a timeout it is the longest.
def ttl_ms(seconds: float | None) -> int:
    return MAX_TTL_MS if seconds is None else min(max(int(seconds * 1000), 1), MAX_TTL_MS)


# Counts each ttl from the sending of its request, and a linger from the last word of the connection.
class Lease:
    # Begin with a request that is sent now.
    def __init__(self, ttl_ms: int, linger: float | None = None, mutex: Any = None, clock: Clock = now) -> None:
        start = clock()
        self._clock = clock
        self._late = start + ttl_ms / 10_000
        self.end = surely(start, ttl_ms / 1000)
        self.linger = linger
        # When the last request was sent whose answer came over the connection that the hold is bound to.
        self.alive_at = start
        self.is_released = False
        # Of the hold, None if it was not acquired here.
        self.fence: int | None = None
        # Called when the end has come nearer.
        self.watchers: set[Callable[[], object]] = set()
        # Held by a renewal under way: over two connections one could overtake the other, or a release.
        self.renewing: Any = mutex or Mutex()

    # Return whether no more than a tenth of the first ttl has passed.
    def is_fresh(self) -> bool:
        return self._clock() <= self._late

    # Return the seconds until the ttl is over: 0 when it is.
    def left(self) -> float:
        return max(0.0, self.end - self._clock())

    # Return for how many seconds the hold lasts even if its connection has been lost since its last word.
    def sure(self) -> float:
        lingers = math.inf if self.linger is None else surely(self.alive_at, self.linger)
        return max(0.0, min(self.end, lingers) - self._clock())

    # Return the end, the one that a request sets, and now. One that shortens the lease counts, reply or not.
    def sends(self, ttl_ms: int) -> tuple[float, float, float]:
        before, sent = self.end, self._clock()
        end = surely(sent, ttl_ms / 1000)
        self._shorten(end)
        return before, end, sent

    # Return whether the request has set the lease. A lease that was over by then stays lost.
    def answers(self, ends: tuple[float, float, float], is_held: bool, is_bound: bool = True) -> bool:
        before, end, sent = ends
        if not is_held or self.is_released or self._clock() >= before:
            self.ends()
            return False
        self.end = end
        if is_bound:
            self.alive_at = max(self.alive_at, sent)
        return True

    # A release is sent, which ends it also without a reply. That is no loss.
    def releases(self) -> None:
        self.is_released = True
        self.ends()

    # It is known to be over.
    def ends(self) -> None:
        self._shorten(-math.inf)

    def _shorten(self, end: float) -> None:
        if end < self.end:
            self.end = end
            for tell in tuple(self.watchers):
                tell()
