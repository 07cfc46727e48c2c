"""Lets N clients of one process contend for a lock, by this library or by a rival of it.

    bench LIBRARY --url redis://127.0.0.1:PORT --lock KEY --clients N --hold-ms H --seconds S
    bench --list

Each client is a thread (a task with asyncio) with a client of redis-py of its own. It acquires, holds and releases
until the seconds have passed. Printed is a line for each acquisition that was granted within them:
CLIENT ASKED_US GRANTED_US RELEASED_US, on one monotonic clock from the common start, RELEASED_US when the reply came.
At that start `start` goes to stderr, for whoever looks at the server meanwhile.

The libraries are used with their defaults, as are the clients (`Redis.from_url`), with three exceptions: a ttl of 30 s,
no limit on waiting, and for python-redis-lock a socket timeout above its ttl, for it waits by a BLPOP of that length,
which redis-py 8 would give up after 5 s.
"""

import argparse
import asyncio
import contextlib
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager

import redis
import redis.asyncio
import redis.lock
import redis_lock

import redis_lock_client
import redis_lock_client.asyncio

TTL = 30

Acquisition = tuple[int, int, int, int]


def python_redis_lock(client: redis.Redis, key: str) -> AbstractContextManager[object]:
    """Return a lock of python-redis-lock."""
    lock: AbstractContextManager[object] = redis_lock.Lock(client, key, expire=TTL)
    return lock


THREADED: dict[str, Callable[[redis.Redis, str], AbstractContextManager[object]]] = {
    "redis-lock": lambda client, key: redis_lock_client.Lock(client, key, timeout=TTL),
    "redis-py": lambda client, key: redis.lock.Lock(client, key, timeout=TTL),
    "python-redis-lock": python_redis_lock,
}
SETTINGS: dict[str, dict[str, float]] = {"python-redis-lock": {"socket_timeout": TTL + 5}}
LIBRARIES = [*THREADED, "redis-lock-asyncio"]


class Clock:
    """Microseconds since the start, and whether it is still time to go on."""

    def __init__(self, seconds: float) -> None:
        """Start now."""
        self._start = time.monotonic()
        self.end = int(seconds * 1e6)

    def us(self) -> int:
        """Return the microseconds since the start."""
        return int((time.monotonic() - self._start) * 1e6)


def threads(options: argparse.Namespace) -> Iterator[Acquisition]:
    """Run the clients as threads."""
    done: list[Acquisition] = []
    clock = Clock(0)

    def start() -> None:
        nonlocal clock
        clock = Clock(options.seconds)
        print("start", file=sys.stderr, flush=True)

    together = threading.Barrier(options.clients, action=start)

    def client(number: int) -> None:
        make = THREADED[options.library]
        redis_client = redis.Redis.from_url(options.url, **SETTINGS.get(options.library, {}))
        # Connects, and has the server know the scripts, on a lock of its own.
        with make(redis_client, f"{options.lock}:{number}"):
            pass
        lock = make(redis_client, options.lock)
        together.wait()
        while (asked := clock.us()) < clock.end:
            with lock:
                granted = clock.us()
                time.sleep(options.hold)
            done.append((number, asked, granted, clock.us()))

    running = [threading.Thread(target=client, args=(number,)) for number in range(options.clients)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return (each for each in done if each[2] < clock.end)


async def tasks(options: argparse.Namespace) -> list[Acquisition]:
    """Run the clients as tasks."""
    async with contextlib.AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(connected(options.url)) for _ in range(options.clients)]
        clock = Clock(options.seconds)
        print("start", file=sys.stderr, flush=True)
        done: list[Acquisition] = []

        async def run(number: int) -> None:
            lock = redis_lock_client.asyncio.Lock(clients[number], options.lock, timeout=TTL)
            while (asked := clock.us()) < clock.end:
                async with lock:
                    granted = clock.us()
                    await asyncio.sleep(options.hold)
                done.append((number, asked, granted, clock.us()))

        async with asyncio.TaskGroup() as group:
            for number in range(options.clients):
                group.create_task(run(number))
    return [each for each in done if each[2] < clock.end]


@contextlib.asynccontextmanager
async def connected(url: str) -> AsyncIterator["redis.asyncio.Redis"]:
    """Give a client that has its connection."""
    async with redis.asyncio.Redis.from_url(url) as client:
        await client.ping()
        yield client


def parse() -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="version", version="\n".join(LIBRARIES), help="print the libraries")
    parser.add_argument("library", choices=LIBRARIES)
    parser.add_argument("--url", required=True)
    parser.add_argument("--lock", required=True, metavar="KEY")
    parser.add_argument("--clients", required=True, type=int, metavar="N")
    parser.add_argument("--hold-ms", required=True, type=lambda text: float(text) / 1000, dest="hold", metavar="H")
    parser.add_argument("--seconds", required=True, type=float, metavar="S")
    return parser.parse_args()


def main() -> None:
    """Run one library and print its acquisitions."""
    options = parse()
    acquisitions = asyncio.run(tasks(options)) if options.library == "redis-lock-asyncio" else threads(options)
    sys.stdout.writelines(f"{' '.join(map(str, each))}\n" for each in acquisitions)


if __name__ == "__main__":
    main()
