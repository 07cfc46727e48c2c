"""Keeps a hold while a task works."""

import asyncio
import contextlib
from types import TracebackType
from typing import TYPE_CHECKING, Self

from ..keeper import TURN, Keeping

if TYPE_CHECKING:
    from .lock import Lock


class KeepAlive(Keeping):
    """Renews a hold at a third of its ttl, or of a shorter linger, until the context ends.

    As `redis_lock_client.KeepAlive`, but a loss cancels the body at its next await, and the context raises
    LockNotOwnedError.
    """

    # Whether a loss ends the body.
    _cancels = True

    def __init__(self, lock: "Lock") -> None:
        """Use `Lock.keep_alive`."""
        super().__init__(lock)
        self._is_lost = False
        self._clock: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> Self:
        """Renew once, for only then it is known how long the lease is. Raise LockNotOwnedError when it is over."""
        await self._begin()
        body = asyncio.current_task()
        assert body is not None  # Whoever awaits this is a task.
        self._body, self._cancelling = body, body.cancelling()
        self._watch_the_clock()
        self._lease.watchers.add(self._watch_the_clock)
        self._renewing = asyncio.create_task(self._keep_renewing())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop renewing. Nothing is released."""
        self._stop()
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

    def _watch_the_clock(self) -> None:
        # Not the renewing task's to do: a renewal may hang for longer than the lease lasts.
        if self._clock:
            self._clock.cancel()
        left = self._lease.sure()
        # The end may have moved by then. The body may be who runs this: it is cancelled where it waits only.
        then = self._watch_the_clock if left else self._lose
        self._clock = asyncio.get_running_loop().call_later(min(left, TURN), then)

    async def _keep_renewing(self) -> None:
        while not self._is_over:
            await asyncio.sleep(min(self._due_in(), TURN))
            if self._is_over or self._due_in():
                continue
            # Whatever it is, the clock goes on.
            with contextlib.suppress(Exception):
                if not await self._renewal():
                    return self._lose()

    def _lose(self) -> None:
        if not self._is_over:
            self._stop()
            if self._lease.is_released:
                return
            # What is lost is not prolonged: nobody has to wait for a server that may not answer.
            self._renewing.cancel()
            self._lease.ends()
            self._is_lost = self._cancels
            if self._seen:
                self._seen.end(is_lost=True)
            if self._cancels:
                self._body.cancel()

    def _stop(self) -> None:
        self._is_over = True
        self._lease.watchers.discard(self._watch_the_clock)
        if self._clock:
            self._clock.cancel()
        # A renewal that is under way comes to its end: cancelled, it would cut the connection that a hold with linger
        # is bound to, or come after the release.
        if self._is_renewing:
            _ending.add(self._renewing)
            self._renewing.add_done_callback(_ending.discard)
        else:
            self._renewing.cancel()


# A task that nothing refers to may vanish.
_ending: "set[asyncio.Task[None]]" = set()
