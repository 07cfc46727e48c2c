"""Renews holds while the work takes its time, and says when they are lost: one keeper for all of a process."""

import contextlib
import heapq
import itertools
import os
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

from .lease import Lease, now, ttl_ms
from .replies import Kind, kind_of

if TYPE_CHECKING:
    from .lock import Lock

USED = "a context of keep_alive() can be entered once only: call keep_alive() again"

# The longest pause in seconds after a renewal that has failed.
SOON = 0.25
# A shorter linger makes no renewals more frequent.
SHORTEST_SPAN = 0.3
# For how many seconds at most nobody looks at the clock. Timers stand still in a suspended machine.
TURN = 1.0
# After how long a renewal that hangs makes the keeper start another thread for the others, and how many there may be.
HANGS = 0.25
MOST_THREADS = 16


# Set also by the clock alone, however late the keeper's thread has its turn.
class Lost(threading.Event):
    def __init__(self, kept: "KeepAlive") -> None:
        super().__init__()
        self._kept = kept

    def is_set(self) -> bool:
        return super().is_set() or self._kept.is_over_by_the_clock()


# A hold that is kept, by a thread or a task.
class Keeping:
    # Only then it is known how long the lease is, unless the hold is new.
    _renews_at_once = True

    def __init__(self, lock: Any) -> None:
        self._lock = lock
        self._seen = lock.local.seen
        self._ttl_ms = ttl_ms(lock.timeout or None)
        self._token = lock._held_token("keep alive")
        self._lease: Lease = lock.local.lease or lock._lease(self._ttl_ms)
        self._fence = lock.local.fence if lock.local.lease else None
        # It is renewed at a third of its ttl, or of a shorter linger, and soon after a failure.
        ttl, linger = self._ttl_ms / 1000, lock.linger
        self._span = ttl if linger is None else min(ttl, max(linger, SHORTEST_SPAN))
        self._renew_at = now() + self._span / 3
        self._is_over = False
        self._is_renewing = False

    # Renew, and plan the next time: soon after a failure, because the rest of the lease is short.
    async def _renewal(self) -> bool:
        self._is_renewing, pause = True, min(self._span / 10, SOON)
        try:
            held: bool = await self._lock._renew_once(self._token, self._ttl_ms, self._lease, self._fence)
            pause = self._span / 3
        finally:
            self._renew_at = now() + pause
            self._is_renewing = False
        return held

    # Return the seconds until it is time.
    def _due_in(self) -> float:
        return max(0.0, self._renew_at - now())

    def is_over_by_the_clock(self) -> bool:
        return not (self._is_over or self._lease.is_released or self._lease.sure())

    # Renew, which keeping begins with. The server may not be able to answer yet.
    async def _begin(self) -> None:
        if self._is_over:
            raise RuntimeError(USED)
        driver, is_held, left = self._lock._driver, not self._renews_at_once, 1.0
        while not is_held and left:
            try:
                is_held = await self._renewal()
                left = 0
            except driver.error as error:
                if not driver.is_answer(error) or kind_of(error) is not Kind.TEMPORARY:
                    raise
                if left := self._lease.left():
                    await driver.sleep(min(SOON, left))
        if not is_held:
            raise self._lock._not_owned("keep alive")


class KeepAlive(Keeping):
    """Renews a hold at a third of its ttl, or of a shorter linger, until the context ends.

    `lost` is set, and `on_lost` called in a thread of its own, when a renewal answers that nothing is held, or when
    none has succeeded by the end of the lease. The lease is counted by this process's clock from before a renewal was
    sent, less 1 % and 2 ms, so it ends here before it ends in the server. With `linger` it ends so long after the last
    word of the connection.

    A release ends the renewals, and is no loss.
    """

    def __init__(self, lock: "Lock", on_lost: Callable[[], object] | None = None) -> None:
        """Use `Lock.keep_alive`."""
        super().__init__(lock)
        self.lost: threading.Event = Lost(self)
        self._on_lost = on_lost
        # The number of the keeper's next look at it.
        self.look = 0
        self._once = threading.Lock()

    def __enter__(self) -> Self:
        """Renew once, for only then it is known how long the lease is. Raise LockNotOwnedError when it is over."""
        from .lock import run

        run(self._begin())
        self._lease.watchers.add(self._look)
        try:
            KEEPER.look_at(self)
        except BaseException:
            # A signal handler may raise at any time.
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Stop renewing. Nothing is released."""
        self._is_over = True
        self._lease.watchers.discard(self._look)

    def _look(self) -> None:
        KEEPER.look_at(self)

    # What the keeper calls.

    # Look at the clock. Return after how many seconds to look again, or None.
    def next_look(self) -> float | None:
        if self._is_over:
            return None
        if not (left := self._lease.sure()):
            self._lose()
            return None
        if self._is_renewing:
            return min(left, TURN)
        if not (due := self._due_in()):
            self._is_renewing = True
            KEEPER.renew(self)
            return min(left, TURN)
        return min(left, due, TURN)

    # Renew, unless it is over meanwhile.
    def renew(self) -> None:
        from .lock import run

        is_held = True
        # Whatever it is, the clock goes on.
        with contextlib.suppress(Exception):
            if not self._is_over:
                is_held = run(self._renewal())
        self._is_renewing = False
        if not is_held:
            self._lose()
        else:
            self._look()

    def _lose(self) -> None:
        with self._once:
            if self._is_over:
                return
            self.__exit__()
            if self._lease.is_released:
                return
            # A renewal under way may still be answered. What is lost stays lost.
            self._lease.ends()
            self.lost.set()
        if self._seen:
            self._seen.end(is_lost=True)
        if self._on_lost:
            # It may take its time, and its errors are told as those of any thread.
            threading.Thread(target=self._on_lost, name="redis-lock on_lost", daemon=True).start()


# A thread that looks at the clock, and one that renews: more of these only while a server hangs.
class Keeper:
    # Nothing is kept yet.
    def __init__(self) -> None:
        self._changed = threading.Condition()
        # When to look at what. Of entries for the same hold the newest counts.
        self._looks: list[tuple[float, int, KeepAlive]] = []
        self._numbers = itertools.count()
        self._clock: threading.Thread | None = None
        self._jobs: deque[tuple[float, KeepAlive]] = deque()
        self._has_jobs = threading.Condition()
        self._renewers = self._idle = 0

    # Look at it now, because something has changed, and from then on until it is over.
    def look_at(self, kept: KeepAlive) -> None:
        with self._changed:
            self._plan(kept, 0)
            self._changed.notify()
            if self._clock is None:
                self._clock = threading.Thread(target=self._watch, name="redis-lock keeper", daemon=True)
                self._clock.start()

    # Let a thread renew it.
    def renew(self, kept: KeepAlive) -> None:
        with self._has_jobs:
            self._jobs.append((now(), kept))
            self._has_jobs.notify()
            if not self._renewers:
                self._start_renewer()

    def _watch(self) -> None:
        while True:
            with self._changed:
                if not self._looks:
                    self._changed.wait(10 * TURN)
                    if not self._looks:
                        self._clock = None
                        return
                    continue
                if (left := self._looks[0][0] - now()) > 0:
                    self._changed.wait(min(left, TURN))
                    continue
                _, number, kept = heapq.heappop(self._looks)
                if kept.look != number:
                    continue
            if (again := kept.next_look()) is not None:
                with self._changed:
                    if kept.look == number:
                        self._plan(kept, again)
            with self._has_jobs:
                if self._jobs and now() - self._jobs[0][0] > HANGS and self._renewers < MOST_THREADS:
                    self._start_renewer()

    def _plan(self, kept: KeepAlive, seconds: float) -> None:
        kept.look = next(self._numbers)
        heapq.heappush(self._looks, (now() + seconds, kept.look, kept))

    def _start_renewer(self) -> None:
        self._renewers += 1
        threading.Thread(target=self._renew, name="redis-lock renewals", daemon=True).start()

    def _renew(self) -> None:
        while True:
            with self._has_jobs:
                if not self._jobs and not self._has_jobs.wait_for(lambda: bool(self._jobs), 10 * TURN):
                    self._renewers -= 1
                    return
                _, kept = self._jobs.popleft()
            kept.renew()


KEEPER = Keeper()

if hasattr(os, "register_at_fork"):
    # The threads, and what they held, are the parent's.
    os.register_at_fork(after_in_child=KEEPER.__init__)  # type: ignore[misc]
