"""A worker under a lock of the redis-lock module, by redis-py's asyncio side."""

import asyncio
import sys

import redis.asyncio as redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import TryAgainError

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


async def main() -> int:
    """Take the lock, work, release."""
    opt = options()
    # Reads for longer than a slice. Only this connection may block, so it is nobody else's.
    async with redis.Redis.from_url(opt.url, socket_timeout=WAITING_TIMEOUT, retry=NO_RETRY) as waiting:
        fence = await acquire(waiting, opt)
    if fence is None:
        event("gave-up")
        return NOT_GRANTED
    event("granted", fence)
    # Gives up a server that does not answer while the lease still lasts. The watchdog has a connection of its own.
    async with redis.Redis.from_url(opt.url, socket_timeout=opt.ttl / 3, retry=NO_RETRY) as client:
        status = LOST
        try:
            released = await hold(client, opt, fence)
            event("released", released)
            status = DONE if released else LOST
        except* TimeoutError:
            event("lost", "no renewal succeeded before the end of the lease")
        except* Lost as lost:
            event("lost", lost.exceptions[0])
        except* Refused:
            event("refused", fence)
        return status


async def acquire(client: redis.Redis, opt) -> int | None:
    """Wait in the server's queue for the block time at most, in slices that keep one place."""
    clock = asyncio.get_running_loop().time
    end = clock() + opt.block
    while True:
        left = end - clock()
        try:
            # The same token asks again: it goes on at its place, or it was granted meanwhile and gets its own fence.
            fence = await client.execute_command(*acquiring(opt, left))
        except BROKEN as error:
            complain("acquire", error)
            await asyncio.sleep(PAUSE)
        else:
            if fence is not None:
                return fence
        if clock() >= end:
            await give_up(client, opt)
            return None


async def give_up(client: redis.Redis, opt) -> None:
    """Leave the queue, and release what may have been granted by a reply that was lost."""
    clock = asyncio.get_running_loop().time
    end = clock() + GRACE
    while clock() < end:
        try:
            await client.execute_command("LOCK.RELEASE", opt.lock, opt.token)
        except BROKEN as error:
            complain("give up", error)
            await asyncio.sleep(PAUSE)
        else:
            return


async def hold(client: redis.Redis, opt, fence: int) -> int:
    """Work, cancelled as soon as the lease ends, by the clock or by the watchdog's word; then release."""
    # Until the first renewal this is only a limit for it: the acquire may have waited, so it does not tell when the
    # lease began.
    async with asyncio.timeout(surely(opt.ttl)) as lease:
        await renew(client, opt, lease)
        done = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(keep_renewing(client, opt, lease, done))
            try:
                await work(client, opt, fence, lease)
            finally:
                # Told, not cancelled: before Python 3.12 asyncio.wait_for, which redis-py uses, may swallow that.
                done.set()
        return await insist(lease, lambda: client.execute_command("LOCK.RELEASE", opt.lock, opt.token))


async def keep_renewing(client: redis.Redis, opt, lease: asyncio.Timeout, done: asyncio.Event) -> None:
    """Renew at every third of the ttl until the work is done."""
    while not done.is_set():
        try:
            async with asyncio.timeout(opt.ttl / 3):
                await done.wait()
        except TimeoutError:
            await renew(client, opt, lease)


async def renew(client: redis.Redis, opt, lease: asyncio.Timeout) -> None:
    """Renew, again and again until the lease ends. Raise Lost when there is nothing to renew."""
    clock = asyncio.get_running_loop().time
    while (sent := clock()) < lease.when():
        # The server counts from later than `sent`.
        try:
            renewed = await client.execute_command("LOCK.RENEW", opt.lock, opt.token, in_ms(opt.ttl))
        except BROKEN as error:
            complain("renew", error)
            await asyncio.sleep(PAUSE)
            continue
        if not renewed:
            raise Lost("the server says that it is not held any more")
        # Woken from a long stop, the lease may have ended: then it stays so.
        if clock() < lease.when():
            lease.reschedule(sent + surely(opt.ttl))
        return event("renewed")
    raise Lost("no renewal succeeded before the end of the lease")


async def work(client: redis.Redis, opt, fence: int, lease: asyncio.Timeout) -> None:
    """Read or write the resource."""
    write = client.register_script(RESOURCE)
    for number in range(1, opt.writes + 1):
        if opt.shared:
            value = await insist(lease, lambda: client.hget(opt.resource, "writes"))
            event("read", int(value or 0))
        elif await insist(lease, lambda: write(keys=[opt.resource], args=[fence, opt.token])):
            event("wrote", number)
        else:
            raise Refused
        await asyncio.sleep(opt.pause)


async def insist(lease: asyncio.Timeout, send):
    """Send again after a lost connection, as long as the lease lasts."""
    while True:
        # The clock is asked as well: after a stop of the process it knows more than the event loop.
        if asyncio.get_running_loop().time() >= lease.when():
            raise TimeoutError
        try:
            return await send()
        except BROKEN as error:
            complain("work", error)
            await asyncio.sleep(PAUSE)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
