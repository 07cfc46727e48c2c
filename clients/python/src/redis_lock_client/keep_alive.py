"""The watchdog: renews a hold while the work takes its time, and says when it is lost."""

import threading
import time
from collections.abc import Callable
from typing import Self

from . import _protocol as protocol
from ._libraries import LockNotOwnedError

USED = "a context of keep_alive() can be entered once only: call keep_alive() again"

# The longest pause in seconds after a renewal that has failed, with TRYAGAIN for instance.
SOON = 0.25

# For how many seconds at most nobody looks at the clock. Timers stand still in a suspended machine.
TURN = 1.0


class KeepAlive:
    """Renews a hold at a third of its ttl, or of a shorter linger, in a thread of its own, until the context ends.

    `lost` is set, and `on_lost` called, when a renewal answers that nothing is held, or when none has succeeded by the
    end of the lease. The lease is counted by this process's clock from before a renewal was sent, less 1 % and 2 ms, so
    it ends here before it ends in the server. When the connection is lost, the lease is the linger.

    A release ends the renewals, and is no loss.
    """

    def __init__(
        self,
        renew: Callable[[], bool],
        ttl_ms: int,
        name: object,
        on_lost: Callable[[], object] | None,
        not_owned: LockNotOwnedError,
        lease: protocol.Lease | None = None,
        linger: float | None = None,
        try_again: type[Exception] | tuple[()] = (),
    ) -> None:
        """Renew by `renew`, which returns whether anything was held. Use `Lock.keep_alive`."""
        self.lost = threading.Event()
        self._renew = renew
        self._ttl_ms = ttl_ms
        self._span = protocol.span_ms(ttl_ms, linger) / 1000
        self._lease = lease or protocol.Lease(ttl_ms, is_async=False)
        self._linger = linger
        self._try_again = try_again
        self._name = name
        self._on_lost = on_lost
        self._not_owned = not_owned
        self._over = threading.Event()
        # Set when the end of the lease has come nearer, or when it is of no interest any more.
        self._news = threading.Event()
        self._once = threading.Lock()

    def __enter__(self) -> Self:
        """Renew once, for only then it is known how long the lease is. Raise LockNotOwnedError when it is over."""
        if self._over.is_set():
            raise RuntimeError(USED)
        while True:
            try:
                if not self._renewed():
                    raise self._not_owned
                break
            except self._try_again as error:
                pause = self._lease.pause_before_asking_again()
                if not pause:
                    raise self._not_owned from error
                time.sleep(pause)
        self._lease.watchers.add(self._news.set)
        # Two threads, for a renewal may hang in the client for longer than the lease lasts.
        try:
            for run in (self._keep_renewing, self._watch_the_clock):
                threading.Thread(target=run, name=f"{run.__name__} {self._name!r}", daemon=True).start()
        except BaseException:
            # A signal handler may raise at any time.
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Stop renewing. Nothing is released."""
        self._over.set()
        self._news.set()
        self._lease.watchers.discard(self._news.set)

    def _renewed(self) -> bool:
        with self._lease.renewing:
            if self._over.is_set():
                return True
            # After the lease a renewal would only prolong what somebody else waits for.
            if not self._lease.left():
                return False
            ends = self._lease.sends(self._ttl_ms)
            return self._lease.answers(ends, self._renew())

    def _keep_renewing(self) -> None:
        pause = self._span / 3
        # An Event waits for some 290 years at most.
        while not self._over.wait(min(pause, threading.TIMEOUT_MAX)):
            try:
                is_held = self._renewed()
            except Exception:
                # Whatever it was, the clock goes on. Sooner than usual, because the rest of the lease is short.
                pause = min(self._span / 10, SOON)
                continue
            if not is_held:
                # An error of `on_lost` is told as any other of a thread.
                return self._lose()
            pause = self._span / 3

    def _failed(self, is_connection_lost: bool) -> None:
        if self._over.is_set():
            # So that it is not sent again.
            raise self._not_owned
        if is_connection_lost and self._linger is not None:
            self._lease.breaks(self._linger)

    def _watch_the_clock(self) -> None:
        while left := self._lease.left():
            self._news.wait(min(left, TURN))
            self._news.clear()
            if self._over.is_set():
                return
        self._lose()

    def _lose(self) -> None:
        with self._once:
            if self._over.is_set():
                return
            self._over.set()
            self._news.set()
            if self._lease.is_released:
                return
            self.lost.set()
        if self._on_lost:
            self._on_lost()
