"""Renews holds while the work takes its time, and says when they are lost: one keeper for all of a process."""

import asyncio
import contextlib
import heapq
import itertools
import math
import os
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Self

from .lease import Lease, now, ttl_ms
from .steps import Steps, beside, go_on, run, run_async

# The longest pause in seconds after a renewal that has failed.
SOON = 0.25
# A shorter linger makes no renewals more frequent.
SHORTEST_SPAN = 0.3
# For how many seconds at most nobody looks at the clock. Timers stand still in a suspended machine.
TURN = 1.0
# After how long a renewal that hangs makes the keeper start another thread for the others, and how many there may be.
HANGS = 0.25
MOST_THREADS = 16


# A hold that is kept, by a thread or a task.
class Keeping:
    # `is_new`: the hold was taken just now, so that it is known how long the lease is.
    def __init__(self, lock: Any, is_new: bool = False) -> None:
        self._lock = lock
        self._seen = lock.local.seen
        self._ttl_ms = ttl_ms(lock.timeout or None)
        self._token = lock._held_token("keep alive")
        self._lease: Lease = lock.local.lease or lock._lease(self._ttl_ms)
        # It is renewed at a third of its ttl, or of a shorter linger, and soon after a failure.
        ttl, linger = self._ttl_ms / 1000, lock.linger
        self._span = ttl if linger is None else min(ttl, max(linger, SHORTEST_SPAN))
        self._renew_at = 0.0
        self._is_new = is_new
        self._is_over = False
        self._once = threading.Lock()

    # Look at it after so many seconds, or now, because something has changed, and from then on until it is over.
    look: Callable[..., None]

    # Let it be renewed while others look.
    _start_renewal: Callable[[], None]

    # Tell that it is lost.
    _tell: Callable[[], None]

    # Begin to keep it. Only after a renewal it is known how long the lease is, unless the hold is new.
    def begin(self) -> Steps[None]:
        if self._is_over:
            raise RuntimeError("a context of keep_alive() can be entered once only: call keep_alive() again")
        if not self._is_new:
            yield from self._lock._renewed("keep alive", self._token, self._ttl_ms, self._lease)
        self._renew_at = now() + self._span / 3
        self._lease.watchers.add(self.look)
        self.look()

    def stop(self) -> None:
        self._is_over = True
        self._lease.watchers.discard(self.look)

    # Renew, unless it is over meanwhile. Whatever goes wrong, the clock goes on: soon after a failure, because the rest
    # of the lease is short.
    def renew(self) -> Steps[None]:
        is_held, pause = True, min(self._span / 10, SOON)
        try:
            with contextlib.suppress(Exception):
                if not self._is_over:
                    is_held = yield from self._lock._renew_once(self._token, self._ttl_ms, self._lease)
                    pause = self._span / 3
        finally:
            self._renew_at = now() + pause
        if not is_held:
            self._lose()
        elif not self._is_over:
            self.look()

    # Look at the clock. Return after how many seconds to look again, or None.
    def next_look(self) -> float | None:
        if self._is_over:
            return None
        if not (left := self._lease.sure()):
            self._lose()
            return None
        if (due := self._renew_at - now()) <= 0:
            # Not before this renewal has come to its end.
            due = self._renew_at = math.inf
            self._start_renewal()
        return min(left, due, TURN)

    def is_over_by_the_clock(self) -> bool:
        return not (self._is_over or self._lease.is_released or self._lease.sure())

    def _lose(self) -> None:
        # Several threads may find out.
        with self._once:
            is_known, self._is_over = self._is_over, True
        self.stop()
        if is_known or self._lease.is_released:
            return
        # A renewal under way may still be answered. What is lost stays lost.
        self._lease.ends()
        if self._seen:
            self._seen.end(is_lost=True)
        self._tell()


# Set also by the clock alone, however late the keeper's thread has its turn.
class Lost(threading.Event):
    def __init__(self, kept: "KeepAlive") -> None:
        super().__init__()
        self._kept = kept

    def is_set(self) -> bool:
        return super().is_set() or self._kept.is_over_by_the_clock()


class KeepAlive(Keeping):
    """Renews a hold at a third of its ttl, or of a shorter linger, until the context ends.

    `lost` is set, and `on_lost` called in a thread of its own, when a renewal answers that nothing is held, or when
    none has succeeded by the end of the lease. The lease is counted by this process's clock from before a renewal was
    sent, less 1 % and 2 ms, so it ends here before it ends in the server. With `linger` it ends so long after the last
    word of the connection.

    A release ends the renewals, and is no loss.
    """

    def __init__(self, lock: Any, on_lost: Callable[[], object] | None = None, is_new: bool = False) -> None:
        """Use `Lock.keep_alive`."""
        super().__init__(lock, is_new)
        self.lost: threading.Event = Lost(self)
        # Of the keeper's next look at it.
        self.number = 0
        self._on_lost = on_lost

    def __enter__(self) -> Self:
        """Renew once, for only then it is known how long the lease is. Raise LockNotOwnedError when it is over."""
        try:
            run(self.begin())
        except BaseException:
            # A signal handler may raise at any time.
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Stop renewing. Nothing is released."""
        self.stop()

    def look(self, seconds: float = 0) -> None:
        KEEPER.look_at(self, seconds)

    def _start_renewal(self) -> None:
        KEEPER.renew(self)

    def _tell(self) -> None:
        self.lost.set()
        if self._on_lost:
            # It may take its time, and its errors are told as those of any thread.
            beside(self._on_lost, "on_lost")


# A thread that looks at the clock, and one that renews: more of these, which stay, only if a server hangs.
class Keeper:
    # Nothing is kept yet.
    def __init__(self) -> None:
        lock = threading.RLock()
        self._changed, self._has_jobs = threading.Condition(lock), threading.Condition(lock)
        # When to look at what. Of entries for the same hold the newest counts.
        self._looks: list[tuple[float, int, KeepAlive]] = []
        self._numbers = itertools.count()
        # What is to be renewed, and since when.
        self._jobs: deque[tuple[float, KeepAlive]] = deque()
        self._threads = 0

    # Look at it after so many seconds, and no more at what was planned before.
    def look_at(self, kept: KeepAlive, seconds: float) -> None:
        with self._changed:
            kept.number = next(self._numbers)
            heapq.heappush(self._looks, (now() + seconds, kept.number, kept))
            self._changed.notify()
            if not self._threads:
                self._start(self._watch)
                self._start(self._renew)

    # Let a thread renew it.
    def renew(self, kept: KeepAlive) -> None:
        with self._changed:
            self._jobs.append((now(), kept))
            self._has_jobs.notify()

    def _start(self, work: Callable[[], None]) -> None:
        threading.Thread(target=work, name="redis-lock keeper", daemon=True).start()
        # Not before: the next one who needs it tries again if the process could start no more threads.
        self._threads += 1

    def _watch(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._looks)
                if (left := self._looks[0][0] - now()) > 0:
                    self._changed.wait(min(left, TURN))
                    continue
                _, number, kept = heapq.heappop(self._looks)
            # To look at it once more than was planned does no harm.
            again = kept.next_look()
            with self._changed:
                # Something may have changed since this was planned.
                if again is not None and number == kept.number:
                    self.look_at(kept, again)
                if self._jobs and now() - self._jobs[0][0] > HANGS and self._threads <= MOST_THREADS:
                    with contextlib.suppress(RuntimeError):
                        self._start(self._renew)

    def _renew(self) -> None:
        while True:
            with self._changed:
                self._has_jobs.wait_for(lambda: self._jobs)
                _, kept = self._jobs.popleft()
            run(kept.renew())


KEEPER = Keeper()

if hasattr(os, "register_at_fork"):
    # The threads, and what they held, are the parent's.
    os.register_at_fork(after_in_child=KEEPER.__init__)  # type: ignore[misc]


class AsyncKeepAlive(Keeping):
    """Renews a hold at a third of its ttl, or of a shorter linger, until the context ends.

    As `redis_lock_client.KeepAlive`, but a loss cancels the body at its next await, and the context raises
    LockNotOwnedError.
    """

    _clock: asyncio.TimerHandle | None = None
    _renewing: "asyncio.Task[None] | None" = None
    _is_lost = False

    async def __aenter__(self) -> Self:
        """Renew once, for only then it is known how long the lease is. Raise LockNotOwnedError when it is over."""
        body: Any = asyncio.current_task()
        self._body, self._cancelling = body, body.cancelling()
        await run_async(self.begin())
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        """Stop renewing. Nothing is released."""
        self.stop()
        if not self._is_lost:
            return
        if kind is None:
            # The body came to its end before the cancellation came to it.
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0)
        # As asyncio.timeout does: only a cancellation of our own becomes an error, one from outside goes on.
        from_outside = self._body.uncancel() > self._cancelling
        if kind is None or (kind is asyncio.CancelledError and not from_outside):
            raise self._lock._not_owned("keep alive") from error

    @property
    def lost(self) -> bool:
        """Whether the hold is lost, by the clock, also before the body has heard of it."""
        return self._is_lost or self.is_over_by_the_clock()

    # The body may be who runs this: it is cancelled where it waits only.
    def look(self, seconds: float = 0) -> None:
        if self._clock:
            self._clock.cancel()
        self._clock = asyncio.get_running_loop().call_later(seconds, self._turn)

    def _turn(self) -> None:
        if (again := self.next_look()) is not None:
            self.look(again)

    # One that is under way when the context ends comes to its end: cancelled, it would cut the connection that a hold
    # with linger is bound to, or come after the release.
    def _start_renewal(self) -> None:
        self._renewing = go_on(run_async(self.renew()))

    def _tell(self) -> None:
        # What is lost is not prolonged, and its release waits for no connection that has fallen silent.
        if self._renewing:
            self._renewing.cancel()
        # The maker of a value goes on: its own caller wants it.
        if not self._is_new:
            self._is_lost = True
            self._body.cancel()
