"""A worker under a lock of the redis-lock module, by redis-py."""

import sys
import threading
import time

import redis
from redis.backoff import NoBackoff
from redis.exceptions import TryAgainError
from redis.retry import Retry

from common import (
    DONE,
    GRACE,
    LOST,
    NOT_GRANTED,
    PAUSE,
    RESOURCE,
    WAITING_TIMEOUT,
    Lost,
    Refused,
    acquiring,
    complain,
    event,
    in_ms,
    options,
    surely,
)

# This program resends by itself, for it knows how much time is left. The client would send the old time again.
NO_RETRY = Retry(NoBackoff(), 0)
BROKEN = (redis.ConnectionError, redis.TimeoutError, TryAgainError)


class Lease:
    """A hold that a thread keeps alive. It ends by this process's clock before it ends by the server's."""

    def __init__(self, client: redis.Redis, lock: str, token: str, ttl: float) -> None:
        self._client, self._lock, self._token, self._ttl = client, lock, token, ttl
        self._stop = threading.Event()
        self._watchdog = threading.Thread(target=self._keep_renewing, daemon=True)
        self._lost: Lost | None = None
        self._end = time.monotonic() + surely(ttl)

    def start(self) -> None:
        """Renew once: the acquire may have waited, so only a renewal tells from when the lease counts."""
        self._renew()
        self._watchdog.start()

    def stop(self) -> None:
        """End the renewals, the one under way included."""
        self._stop.set()
        self._watchdog.join()

    def pause(self, seconds: float) -> None:
        """Wait, but raise Lost as soon as the lock is lost. With 0: only see whether it is still held."""
        wake = time.monotonic() + seconds
        # The end moves with every renewal.
        while (left := min(wake, self._end) - time.monotonic()) > 0 and not self._stop.wait(left):
            pass
        if self._lost:
            raise self._lost
        if time.monotonic() >= self._end:
            raise Lost("no renewal succeeded before the end of the lease")

    def _keep_renewing(self) -> None:
        try:
            while not self._stop.wait(self._ttl / 3):
                self._renew()
        except Lost as lost:
            self._lost = lost
            self._stop.set()

    def _renew(self) -> None:
        while time.monotonic() < self._end:
            # The server counts from later than this.
            sent = time.monotonic()
            try:
                if not self._client.execute_command("LOCK.RENEW", self._lock, self._token, in_ms(self._ttl)):
                    raise Lost("the server says that it is not held any more")
            except BROKEN as error:
                complain("renew", error)
                time.sleep(PAUSE)
            else:
                # After a long stop the lease may have ended: then it stays so.
                if time.monotonic() < self._end:
                    self._end = sent + surely(self._ttl)
                    return event("renewed")
        raise Lost("no renewal succeeded before the end of the lease")


def main() -> int:
    """Take the lock, work, release."""
    opt = options()
    # Reads for longer than a slice. Only this connection may block, so it is nobody else's.
    with redis.Redis.from_url(opt.url, socket_timeout=WAITING_TIMEOUT, retry=NO_RETRY) as waiting:
        fence = acquire(waiting, opt)
    if fence is None:
        event("gave-up")
        return NOT_GRANTED
    event("granted", fence)
    # Gives up a server that does not answer while the lease still lasts. The watchdog has a connection of its own.
    with redis.Redis.from_url(opt.url, socket_timeout=opt.ttl / 3, retry=NO_RETRY) as client:
        lease = Lease(client, opt.lock, opt.token, opt.ttl)
        try:
            lease.start()
            work(client, lease, opt, fence)
            lease.stop()
            released = insist(lease, lambda: client.execute_command("LOCK.RELEASE", opt.lock, opt.token))
        except Lost as lost:
            event("lost", lost)
            return LOST
        except Refused:
            event("refused", fence)
            return LOST
    event("released", released)
    return DONE if released else LOST


def acquire(client: redis.Redis, opt) -> int | None:
    """Wait in the server's queue for the block time at most, in slices that keep one place."""
    end = time.monotonic() + opt.block
    while True:
        left = end - time.monotonic()
        try:
            # The same token asks again: it goes on at its place, or it was granted meanwhile and gets its own fence.
            fence = client.execute_command(*acquiring(opt, left))
        except BROKEN as error:
            complain("acquire", error)
            time.sleep(PAUSE)
        else:
            if fence is not None:
                return fence
        if time.monotonic() >= end:
            give_up(client, opt)
            return None


def give_up(client: redis.Redis, opt) -> None:
    """Leave the queue, and release what may have been granted by a reply that was lost."""
    end = time.monotonic() + GRACE
    while time.monotonic() < end:
        try:
            client.execute_command("LOCK.RELEASE", opt.lock, opt.token)
        except BROKEN as error:
            complain("give up", error)
            time.sleep(PAUSE)
        else:
            return


def work(client: redis.Redis, lease: Lease, opt, fence: int) -> None:
    """Read or write the resource, as long as the lock is held."""
    write = client.register_script(RESOURCE)
    for number in range(1, opt.writes + 1):
        if opt.shared:
            value = insist(lease, lambda: client.hget(opt.resource, "writes"))
            event("read", int(value or 0))
        elif insist(lease, lambda: write(keys=[opt.resource], args=[fence, opt.token])):
            event("wrote", number)
        else:
            raise Refused
        lease.pause(opt.pause)


def insist(lease: Lease, send):
    """Send again after a lost connection, as long as the lease lasts."""
    while True:
        lease.pause(0)
        try:
            return send()
        except BROKEN as error:
            complain("work", error)
            lease.pause(PAUSE)


if __name__ == "__main__":
    sys.exit(main())
