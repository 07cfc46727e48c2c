"""Keeps a hold while a task works."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

from .. import _protocol as protocol
from .._libraries import LockNotOwnedError
from ..keep_alive import SOON, TURN, USED


class KeepAlive:
    """Renews a hold at a third of its ttl, or of a shorter linger, until the context ends.

    When a renewal answers that nothing is held, or none has succeeded by the end of the lease, the body is cancelled at
    its next await, and the context raises LockNotOwnedError. The lease is counted by this process's clock from before a
    renewal was sent, less 1 % and 2 ms, so it ends here before it ends in the server. When the connection is lost, the
    lease is the linger.

    A release ends the renewals, and is no loss.
    """

    def __init__(
        self,
        renew: Callable[[], Awaitable[bool]],
        ttl_ms: int,
        not_owned: LockNotOwnedError,
        lease: protocol.Lease | None = None,
        linger: float | None = None,
        try_again: type[Exception] | tuple[()] = (),
        is_awaited: bool = False,
    ) -> None:
        """Renew by `renew`, which returns whether anything was held. Use `Lock.keep_alive`.

        A renewal that `is_awaited` by the release is not cancelled when the context ends.
        """
        self.lost = False
        self._over = False
        self._renew = renew
        self._ttl_ms = ttl_ms
        self._span = protocol.span_ms(ttl_ms, linger) / 1000
        self._lease = lease or protocol.Lease(ttl_ms, is_async=True)
        self._linger = linger
        self._try_again = try_again
        self._is_awaited = is_awaited
        self._not_owned = not_owned
        self._clock: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> Self:
        """Renew once, for only then it is known how long the lease is. Raise LockNotOwnedError when it is over."""
        if self._over:
            raise RuntimeError(USED)
        while True:
            try:
                if not await self._renewed():
                    raise self._not_owned
                break
            except self._try_again as error:
                pause = self._lease.pause_before_asking_again()
                if not pause:
                    raise self._not_owned from error
                await asyncio.sleep(pause)
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
        if not self.lost:
            return
        if kind is None:
            # The body came to its end before the cancellation came to it.
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0)
        # As asyncio.timeout does: only a cancellation of our own becomes an error, one from outside goes on.
        from_outside = self._body.uncancel() > self._cancelling
        if kind is None or (kind is asyncio.CancelledError and not from_outside):
            raise self._not_owned from error

    async def _renewed(self) -> bool:
        async with self._lease.renewing:
            if self._over:
                return True
            # After the lease a renewal would only prolong what somebody else waits for.
            if not self._lease.left():
                return False
            ends = self._lease.sends(self._ttl_ms)
            return self._lease.answers(ends, await self._renew())

    def _failed(self, is_connection_lost: bool) -> None:
        if self._over:
            # So that it is not sent again.
            raise self._not_owned
        if is_connection_lost and self._linger is not None:
            self._lease.breaks(self._linger)

    def _watch_the_clock(self) -> None:
        # Not the renewing task's to do: a renewal may hang for longer than the lease lasts.
        if self._clock:
            self._clock.cancel()
        left = self._lease.left()
        # The end may have moved by then. The body may be who runs this: it is cancelled where it
        # waits only.
        then = self._watch_the_clock if left else self._lose
        self._clock = asyncio.get_running_loop().call_later(min(left, TURN), then)

    async def _keep_renewing(self) -> None:
        pause = self._span / 3
        while not self._over:
            await asyncio.sleep(pause)
            try:
                if not await self._renewed():
                    return self._lose()
                pause = self._span / 3
            except Exception:
                # Whatever it was, the clock goes on. Sooner than usual, because the rest of the lease is short.
                pause = min(self._span / 10, SOON)

    def _lose(self) -> None:
        if not self._over:
            self._stop()
            if self._lease.is_released:
                return
            # What is lost is not prolonged: nobody has to wait for a server that may not answer.
            self._renewing.cancel()
            self.lost = True
            self._body.cancel()

    def _stop(self) -> None:
        self._over = True
        # Cancelled, a renewal that is on its way could come after the release, and prolong what that leaves.
        if not (self._is_awaited and self._lease.renewing.locked()):
            self._renewing.cancel()
        self._lease.watchers.discard(self._watch_the_clock)
        if self._clock:
            self._clock.cancel()
