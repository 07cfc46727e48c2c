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
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import redis
import redis.asyncio
import redis.lock
import redis_lock

import redis_lock_client
import redis_lock_client.asyncio

TTL = 30
THREADED: dict[str, Callable[[redis.Redis, str], Any]] = {
    "redis-lock": lambda client, key: redis_lock_client.Lock(client, key, timeout=TTL),
    "redis-py": lambda client, key: redis.lock.Lock(client, key, timeout=TTL),
    "python-redis-lock": lambda client, key: redis_lock.Lock(client, key, expire=TTL),
}
SETTINGS: dict[str, Any] = {"python-redis-lock": {"socket_timeout": TTL + 5}}
LIBRARIES = [*THREADED, "redis-lock-asyncio"]


class Run:
    """The clients of one run, their common clock, and what they have acquired."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.began = 0.0
        self.acquired: list[tuple[int, int, int, int]] = []

    def start(self) -> None:
        self.began = time.monotonic()
        print("start", file=sys.stderr, flush=True)

    def us(self) -> int:
        return int((time.monotonic() - self.began) * 1e6)

    def threads(self) -> None:
        options = self.options
        make = THREADED[options.library]
        together = threading.Barrier(options.clients, action=self.start)

        def client(number: int) -> None:
            redis_client = redis.Redis.from_url(options.url, **SETTINGS.get(options.library, {}))
            # Connects, and has the server know the scripts, on a lock of its own.
            with make(redis_client, f"{options.lock}:{number}"):
                pass
            lock = make(redis_client, options.lock)
            together.wait()
            while (asked := self.us()) < options.seconds * 1e6:
                with lock:
                    granted = self.us()
                    time.sleep(options.hold_ms / 1000)
                self.acquired.append((number, asked, granted, self.us()))

        with ThreadPoolExecutor(options.clients) as pool:
            list(pool.map(client, range(options.clients)))

    async def tasks(self) -> None:
        options = self.options
        clients = [redis.asyncio.Redis.from_url(options.url) for _ in range(options.clients)]
        for redis_client in clients:
            await redis_client.ping()
        self.start()

        async def client(number: int) -> None:
            lock = redis_lock_client.asyncio.Lock(clients[number], options.lock, timeout=TTL)
            while (asked := self.us()) < options.seconds * 1e6:
                async with lock:
                    granted = self.us()
                    await asyncio.sleep(options.hold_ms / 1000)
                self.acquired.append((number, asked, granted, self.us()))
            await clients[number].aclose()

        await asyncio.gather(*map(client, range(options.clients)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="version", version="\n".join(LIBRARIES), help="print the libraries")
    parser.add_argument("library", choices=LIBRARIES)
    for name, kind in (("--url", str), ("--lock", str), ("--clients", int), ("--hold-ms", float), ("--seconds", float)):
        parser.add_argument(name, required=True, type=kind)
    run = Run(parser.parse_args())
    if run.options.library == "redis-lock-asyncio":
        asyncio.run(run.tasks())
    else:
        run.threads()
    for each in run.acquired:
        if each[2] < run.options.seconds * 1e6:
            print(*each)


if __name__ == "__main__":
    main()
