"""Lets many clients want one value that is not there, by LOCK.ONCE and in the ways that people use without it.

    bench_once.py [--clients 1000] [--rounds 5] [--version V] [--bytes 100,10000,100000] [--ways once,pubsub,…]

The making takes 500 ms. `killed` is the same, but the first maker's connection ends after 100 ms.

- once     LOCK.ONCE, which looks at the value first; the maker sends LOCK.EXEC and LOCK.RELEASE
- pubsub   GET, SET NX as the lock, SUBSCRIBE, GET once more, and the value in the message (MemoLock's way); who has
           heard nothing when the lock has ended makes the value itself
- polling  GET, SET NX as the lock, and both again each 50 ms
- redis-py the lock of redis.asyncio with its defaults, and GET under it
- dogpile  a region of dogpile.cache with its Redis backend and its lock, in threads, if it is installed

Server and clients have a core each. The rounds of all ways take turns. Printed are, for each, the median and the range
of: computations; milliseconds from the first value to the last answer; commands; the server's CPU and the bytes that it
has sent and got.
"""

import argparse
import asyncio
import contextlib
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import redis
import redis.asyncio

SERVERS = Path(__file__).parents[1] / "testing" / "servers.py"
MAKING = 0.5
KILLED_AFTER = 0.1
# How long a lock lasts in the ways that only its end sets free.
TTL_MS = 3_000
FIELDS = ["computations", "last_ms", "commands", "cpu_ms", "bytes"]


class Raw:
    """A connection that speaks RESP2 and nothing else, so that the clients cost little."""

    sent = 0

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take both ends of it."""
        self.reader, self.writer = reader, writer

    def send(self, *commands: tuple[Any, ...]) -> None:
        """Send commands, and wait for nothing."""
        Raw.sent += len(commands)
        for words in commands:
            parts = [word if isinstance(word, bytes) else str(word).encode() for word in words]
            self.writer.write(b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(p), p) for p in parts))

    async def read(self) -> Any:
        """Return the next reply, or raise an error of the server."""
        line = (await self.reader.readuntil(b"\r\n"))[:-2]
        kind, rest = line[:1], line[1:]
        if kind == b"-":
            raise redis.ResponseError(rest.decode())
        if kind == b"$":
            return None if rest == b"-1" else (await self.reader.readexactly(int(rest) + 2))[:-2]
        if kind == b"*":
            return [await self.read() for _ in range(int(rest))]
        return int(rest) if kind == b":" else rest

    async def call(self, *words: Any) -> Any:
        """Send a command and return its reply."""
        self.send(words)
        return await self.read()


class Round:
    """One value that all want."""

    def __init__(self, value: bytes, kills: bool) -> None:
        """Say what it is, and whether its first maker dies."""
        self.value, self.kills = value, kills
        self.computations = 0
        self.first_at: float | None = None
        self.last_at: float | None = None

    async def make(self, connection: Raw | None = None) -> bytes:
        """Make it, or die."""
        self.computations += 1
        if self.kills and self.computations == 1:
            await asyncio.sleep(KILLED_AFTER)
            if connection:
                connection.writer.transport.abort()
            raise asyncio.CancelledError
        await asyncio.sleep(MAKING)
        return self.value

    def made(self) -> None:
        """Note when it was first made."""
        self.first_at = self.first_at or time.monotonic()


async def once(one: Raw, of: Round, n: int) -> None:
    """Want it by LOCK.ONCE."""
    reply = await one.call("LOCK.ONCE", "{v}:once", "v", f"t{n}", 30_000, "BLOCK", 0, "LINGER", 0)
    if isinstance(reply, int):
        value = await of.make(one)
        of.made()
        one.send(
            ("LOCK.EXEC", "{v}:once", f"t{n}", "SET", "v", value, "PX", 60_000), ("LOCK.RELEASE", "{v}:once", f"t{n}")
        )
        await one.read()
        await one.read()


async def pubsub(one: Raw, of: Round, n: int) -> None:
    """Want it, and subscribe to the news of it."""
    while await one.call("GET", "v") is None:
        if await one.call("SET", "l", f"t{n}", "NX", "PX", TTL_MS):
            return await store(one, of)
        await one.call("SUBSCRIBE", "c")
        one.send(("PING",))  # In place of GET, which a connection that has subscribed may not send in RESP2.
        await one.read()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(TTL_MS / 1000):
                await one.read()
                return None
        await one.call("UNSUBSCRIBE", "c")
        return await store(one, of)
    return None


async def store(one: Raw, of: Round) -> None:
    """Make it, store it, and tell those who have subscribed."""
    value = await of.make(one)
    of.made()
    one.send(("SET", "v", value, "PX", 60_000), ("PUBLISH", "c", value), ("DEL", "l"))
    for _ in range(3):
        await one.read()


async def polling(one: Raw, of: Round, n: int) -> None:
    """Want it, and look again each 50 ms."""
    while await one.call("GET", "v") is None:
        if await one.call("SET", "l", f"t{n}", "NX", "PX", TTL_MS):
            return await store(one, of)
        await asyncio.sleep(0.05)
    return None


async def redis_py(client: redis.asyncio.Redis, of: Round, _: int) -> None:
    """Want it under the lock of redis-py."""
    if await client.get("v") is not None:
        return
    async with client.lock("l", timeout=TTL_MS / 1000):
        if await client.get("v") is None:
            value = await of.make()
            of.made()
            await client.set("v", value, px=60_000)


RAW: dict[str, Callable[[Raw, Round, int], Awaitable[None]]] = {"once": once, "pubsub": pubsub, "polling": polling}


def dogpile(port: int, of: Round, clients: int) -> None:
    """Want it by dogpile.cache, in threads."""
    from dogpile.cache import make_region  # type: ignore[import-not-found]

    region = make_region().configure(
        "dogpile.cache.redis", arguments={"port": port, "distributed_lock": True, "lock_timeout": TTL_MS // 1000}
    )

    def create() -> bytes:
        of.computations += 1
        time.sleep(MAKING)
        of.made()
        return of.value

    with ThreadPoolExecutor(clients) as pool:
        list(pool.map(lambda _: region.get_or_create("v", create), range(clients)))
    of.last_at = time.monotonic()


async def all_of(way: str, port: int, of: Round, clients: int, admin: redis.Redis) -> list[float]:
    """Play one way, and return what the server has counted since all were connected."""

    async def raw(n: int) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await RAW[way](connections[n], of, n)
            of.last_at = time.monotonic()

    async def library(n: int) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await redis_py(libraries[n], of, n)
            of.last_at = time.monotonic()

    if way in RAW:
        connections = [Raw(*await asyncio.open_connection("127.0.0.1", port)) for _ in range(clients)]
        await asyncio.gather(*(one.call("PING") for one in connections))
        Raw.sent, before = 0, seen(admin)
        await asyncio.gather(*(raw(n) for n in range(clients)))
        after = [Raw.sent, *seen(admin)[1:]]
        before[0] = 0
        for one in connections:
            one.writer.close()
    else:
        libraries = [redis.asyncio.Redis(port=port) for _ in range(clients)]
        await asyncio.gather(*(one.ping() for one in libraries))
        before = seen(admin)
        await asyncio.gather(*(library(n) for n in range(clients)))
        after = seen(admin)
        await asyncio.gather(*(one.aclose() for one in libraries))
    return [now - then for then, now in zip(before, after, strict=True)]


def seen(admin: redis.Redis) -> list[float]:
    """Return how many commands the server has run, its CPU in ms, and the bytes of its network."""
    info: dict[str, Any] = admin.info("everything")
    calls = sum(stats["calls"] for name, stats in info.items() if name.startswith("cmdstat_"))
    cpu = info["used_cpu_user"] + info["used_cpu_sys"]
    return [calls, cpu * 1000, info["total_net_input_bytes"] + info["total_net_output_bytes"]]


def play(way: str, port: int, value: bytes, clients: int, kills: bool) -> list[float]:
    """Play a round and return its figures."""
    admin = redis.Redis(port=port)
    admin.flushall()
    of = Round(value, kills)
    if way == "dogpile":
        before = seen(admin)
        dogpile(port, of, clients)
        grown = [now - then for then, now in zip(before, seen(admin), strict=True)]
    else:
        grown = asyncio.run(all_of(way, port, of, clients, admin))
    return [of.computations, ((of.last_at or 0) - (of.first_at or 0)) * 1000, *grown]


def main() -> None:
    """Play all of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--version", default="redis-7.0.15")
    parser.add_argument("--bytes", default="100,10000,100000")
    parser.add_argument("--ways", default="once,pubsub,polling,redis-py,dogpile")
    said = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    launcher = subprocess.Popen(
        [sys.executable, SERVERS, "server", "--version", said.version],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert launcher.stdout
    port, pid = (int(word) for word in launcher.stdout.readline().split("/"))
    if (os.cpu_count() or 1) > 1:
        os.sched_setaffinity(pid, {0})
        os.sched_setaffinity(0, {1})
    ways = said.ways.split(",")
    print("way", "case", "bytes", *(f"{field}\tfrom\tto" for field in FIELDS), sep="\t")
    for size in map(int, said.bytes.split(",")):
        for kills in (False, True):
            figures: dict[str, list[list[float]]] = {}
            for _ in range(said.rounds):
                for way in ways:
                    if not (kills and (way == "dogpile" or size > 100)):
                        with contextlib.suppress(ImportError):
                            figures.setdefault(way, []).append(play(way, port, b"v" * size, said.clients, kills))
            for way, rounds in figures.items():
                columns = list(zip(*rounds, strict=True))
                told = (f"{statistics.median(all):.0f}\t{min(all):.0f}\t{max(all):.0f}" for all in columns)
                print(way, "killed" if kills else "cold", size, *told, sep="\t", flush=True)
    assert launcher.stdin
    launcher.stdin.close()
    launcher.wait()


if __name__ == "__main__":
    main()
