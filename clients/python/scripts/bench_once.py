"""Measures LOCK.ONCE beside the ways that people use without it, into docs/benchmarks/once.tsv and once.md.

- cold    1,000 clients want one value that is not there. The making takes 500 ms
- failing the same, but the first maker releases the lock after 100 ms, and has no value
- killed  its connection ends after 100 ms
- silent  its connection stays, and nothing comes from it

Server and clients have a core each. The ways take turns, round by round.
"""

import asyncio
import contextlib
import os
import resource
import statistics
import subprocess
import time
from pathlib import Path
from typing import Any

import redis

from tests.server import running

ROOT = Path(__file__).parents[3]
FILE = ROOT / "docs/benchmarks/once.tsv"
PAGE = FILE.with_suffix(".md")
HEAD = "way\tsituation\tbytes\tfigure\tmedian\tlow\thigh"
MARK = "<!-- Below this line `make -C clients/python bench-once` writes. -->\n"
PARTS = ["cold:100", "cold:10000", "cold:100000", "failing:100", "killed:100", "silent:100"]
# How long a lock lasts whose owner is silent, and a value.
TTL_MS, KEEP_MS = 3_000, 60_000
VERSION, ROUNDS, CLIENTS = "redis-7.0.15", 5, 1_000
# When the first maker fails, dies or falls silent.
FALLS_AFTER = 0.1

# What each line of the page shows of a situation, by the names of the figures.
CROWD = "{values made:,.0f}, {all answered after ms:,.0f}"
LINES = {
    "cold, 100 bytes": ("cold:100", CROWD),
    "cold, 100 KB": ("cold:100000", CROWD),
    "failing": ("failing:100", CROWD),
    "killed": ("killed:100", CROWD),
    "silent": ("silent:100", CROWD),
    "commands": ("cold:100", "{commands:,.0f}"),
    "server CPU ms, 100 bytes": ("cold:100", "{server CPU ms:,.0f}"),
    "server CPU ms, 10 KB": ("cold:10000", "{server CPU ms:,.0f}"),
}


class Raw:
    """A connection that speaks RESP3 and nothing else, so that the clients cost little."""

    sent = 0

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def all(self, *commands: tuple[Any, ...]) -> list[Any]:
        """Send commands in one pipeline and return their replies."""
        Raw.sent += len(commands)
        for words in commands:
            parts = [word if isinstance(word, bytes) else str(word).encode() for word in words]
            self.writer.write(b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(p), p) for p in parts))
        return [await self.read() for _ in commands]

    async def call(self, *words: Any) -> Any:
        return (await self.all(words))[0]

    async def read(self) -> Any:
        """Return the next reply or message, or raise an error of the server."""
        line = (await self.reader.readuntil(b"\r\n"))[:-2]
        kind, rest = line[:1], line[1:]
        if kind == b"-":
            raise redis.ResponseError(rest.decode())
        if kind == b"$":
            return (await self.reader.readexactly(int(rest) + 2))[:-2]
        if kind in b"*>%":
            return [await self.read() for _ in range(int(rest) * (2 if kind == b"%" else 1))]
        return int(rest) if kind == b":" else None if kind == b"_" else rest


class GoneError(Exception):
    """The maker has died or fallen silent: it releases nothing."""


class Wanted:
    """A value that many want."""

    name, lock = "v", "{v}:once"

    def __init__(self, size: int, situation: str) -> None:
        """Say how long it is, and what becomes of the first maker."""
        self.value, self.situation = b"v" * size, situation
        self.makings = 0
        self.made_at = 0.0

    async def make(self, one: Raw) -> list[tuple[Any, ...]]:
        """Make it, and return the words that follow the name in a SET, or nothing if the making fails."""
        self.makings += 1
        if self.makings == 1 and self.situation != "cold":
            await asyncio.sleep(FALLS_AFTER)
            if self.situation == "failing":
                return []
            if self.situation == "killed":
                one.writer.transport.abort()
            raise GoneError
        await asyncio.sleep(0.5)
        self.made_at = self.made_at or time.monotonic()
        return [("SET", self.name, self.value, "PX", KEEP_MS)]


async def once(one: Raw, of: Wanted, token: str) -> None:
    """Want it by LOCK.ONCE, which looks at the value first."""
    reply = await one.call("LOCK.ONCE", of.lock, of.name, token, TTL_MS, "BLOCK", 0, "LINGER", 0)
    if not isinstance(reply, bytes):
        sets = [("LOCK.EXEC", of.lock, token, *words) for words in await of.make(one)]
        await one.all(*sets, ("LOCK.RELEASE", of.lock, token))


async def pubsub(one: Raw, of: Wanted, token: str) -> None:
    """Want it as MemoLock does. A client that hears nothing looks once more when the maker's lock has ended."""
    if await one.call("GET", of.name) is not None:
        return
    if not await one.call("SET", of.lock, token, "NX", "PX", TTL_MS):
        await one.call("SUBSCRIBE", "news")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(TTL_MS / 1_000):
                if await one.call("GET", of.name) is None:
                    await one.read()
                return
        await one.call("UNSUBSCRIBE")
    await make_and_tell(one, of)


async def make_and_tell(one: Raw, of: Wanted) -> None:
    """Look once more, make it, store it, and tell those who have subscribed."""
    sets = await of.make(one) if await one.call("GET", of.name) is None else []
    tells = [("PUBLISH", "news", of.value)] if sets else []
    await one.all(*sets, *tells, ("DEL", of.lock))


async def polling(one: Raw, of: Wanted, token: str) -> None:
    """Want it, and look again each 50 ms."""
    while await one.call("GET", of.name) is None:
        if await one.call("SET", of.lock, token, "NX", "PX", TTL_MS):
            return await make_and_tell(one, of)
        await asyncio.sleep(0.05)
    return None


WAYS = {"once": ("LOCK.ONCE", once), "pubsub": ("Pub/Sub", pubsub), "polling": ("polling", polling)}


def cpu_ms(admin: redis.Redis) -> float:
    """Return the CPU that the server has used."""
    info: dict[str, Any] = admin.info("cpu")
    return float(info["used_cpu_user"] + info["used_cpu_sys"]) * 1_000


async def play(way: str, of: Wanted, admin: redis.Redis, port: int) -> dict[str, float]:
    admin.flushall()
    all_of = [Raw(*await asyncio.open_connection("127.0.0.1", port)) for _ in range(CLIENTS)]
    for one in all_of:
        await one.call("HELLO", 3)
    answered: list[float] = []

    async def want(n: int) -> None:
        with contextlib.suppress(GoneError):
            await WAYS[way][1](all_of[n], of, f"t{n}")
            answered.append(time.monotonic())

    Raw.sent, before, began = 0, cpu_ms(admin), time.monotonic()
    await asyncio.gather(*(want(n) for n in range(CLIENTS)))
    used = cpu_ms(admin) - before
    for one in all_of:
        one.writer.close()
    return {
        "values made": of.makings,
        "all answered after ms": (max(answered) - began) * 1_000,
        "last answer after the value ms": (max(answered) - of.made_at) * 1_000,
        "commands": Raw.sent,
        "server CPU ms": used,
    }


def measure(situation: str, size: int) -> dict[str, dict[str, list[float]]]:
    """Return the figures of all rounds by their names, of each way. The ways take turns."""
    figures: dict[str, dict[str, list[float]]] = {way: {} for way in WAYS}
    with running(VERSION) as server:
        if (os.cpu_count() or 1) > 1:
            os.sched_setaffinity(server.pid, {0})
            os.sched_setaffinity(0, {1})
        for _ in range(ROUNDS):
            for way, all_of in figures.items():
                of = Wanted(size, situation)
                for name, value in asyncio.run(play(way, of, server.admin, server.port)).items():
                    all_of.setdefault(name, []).append(value)
    return figures


def main() -> None:
    """Measure all, and write the rows and the table of the medians. The module's folder tells its commit."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    rows = [HEAD]
    medians: dict[tuple[str, str], dict[str, float]] = {}
    for part in PARTS:
        situation, size = part.split(":")
        for way, figures in measure(situation, int(size)).items():
            for name, all_of in figures.items():
                spread = statistics.median(all_of), min(all_of), max(all_of)
                medians.setdefault((part, way), {})[name] = spread[0]
                told = (f"{value:.4g}" if value < 1_000 else f"{value:.0f}" for value in spread)
                rows.append("\t".join([way, situation, size, name, *told]))
                print(rows[-1], flush=True)
    FILE.write_text("".join(f"{row}\n" for row in rows))
    table = [
        ["made, ms until all are answered", *(title for title, _ in WAYS.values())],
        ["---", *["---:"] * len(WAYS)],
    ]
    for label, (part, cell) in LINES.items():
        table.append([label, *(cell.format_map(medians[part, way]) for way in WAYS)])
    module = Path(os.environ.get("REDIS_LOCK_MODULE", ROOT / "target/release/libredis_lock.so"))
    log = ["git", "log", "-1", "--format=%h", "--", ":/core", ":/src", ":/Cargo.lock"]
    commit = subprocess.run(log, cwd=module.parent, capture_output=True, text=True, check=True).stdout.strip()
    model = next(line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name"))
    where = f"{VERSION}, commit {commit}, {time.strftime('%F')}, {os.cpu_count()} x {model.split(': ')[1]}."
    lines = "".join(f"| {' | '.join(line)} |\n" for line in table)
    PAGE.write_text("\n".join([PAGE.read_text().split(MARK)[0] + MARK, where, "", lines]))


if __name__ == "__main__":
    main()
