"""Hot values that end, or are made anew before they end, while clients read them."""

import asyncio
import random
import time

import redis

from .crowd import seen
from .ways import Raw, Wanted, Way, expiry, once, pubsub_after_a_miss

KEYS, GETS_PER_S, SECONDS = 100, 10_000, 10
MAKING = 0.1
KEEP_MS, EARLY_MS = 2_000, 500
# Each sends as many GETs in one pipeline, a hundred times a second.
READERS = 10
PIPELINE = GETS_PER_S // READERS // 100

# What a client does that finds no value; with LOCK.ONCE also if the value is early.
WAYS: dict[str, Way] = {"once": once, "pubsub": pubsub_after_a_miss, "expiry": expiry}


class Hot:
    """The clients of a round."""

    def __init__(self, way: str, port: int) -> None:
        """Connect nobody yet."""
        self.way, self.port = way, port
        self.all = [Wanted(f"v{n}", b"v" * 100, MAKING, keep_ms=KEEP_MS) for n in range(KEYS)]
        for of in self.all:
            of.early_ms = EARLY_MS if way == "once" else 0
        self.waits_ms: list[float] = []
        self.free: list[Raw] = []
        self.tasks: set[asyncio.Task[None]] = set()

    async def read(self, reader: int, start: float) -> None:
        """Ask for values, as they come by chance. A late reply makes the next requests late, which counts."""
        one = await Raw.connect(self.port)
        for batch in range(SECONDS * 100):
            asked_at = start + (batch + reader / READERS) / 100
            if (pause := asked_at - time.monotonic()) > 0:
                await asyncio.sleep(pause)
                asked_at = time.monotonic()
            wanted = random.choices(self.all, k=PIPELINE)
            asks_ttl = self.way == "once"
            one.send(*(words for of in wanted for words in [("GET", of.name), ("PTTL", of.name)][: 1 + asks_ttl]))
            for of in wanted:
                value = await one.read()
                is_early = asks_ttl and await one.read() <= EARLY_MS
                if value is not None:
                    self.waits_ms.append((time.monotonic() - asked_at) * 1_000)
                if value is None or is_early:
                    task = asyncio.create_task(self.want(of, asked_at if value is None else None))
                    self.tasks.add(task)
                    task.add_done_callback(self.tasks.discard)
        one.writer.close()

    async def want(self, of: Wanted, asked_at: float | None) -> None:
        """Make or await a value. A client waits for it if it has found none."""
        one = self.free.pop() if self.free else await Raw.connect(self.port)
        await WAYS[self.way](one, of, f"t{id(one)}")
        if asked_at:
            self.waits_ms.append((time.monotonic() - asked_at) * 1_000)
        if self.way == "pubsub":
            await one.unsubscribe()
        self.free.append(one)

    async def play(self) -> None:
        """Have all of them read."""
        start = time.monotonic() + 0.1
        await asyncio.gather(*(self.read(n, start) for n in range(READERS)))
        await asyncio.gather(*self.tasks)
        for one in self.free:
            one.writer.close()


def play(way: str, port: int) -> dict[str, float]:
    """Play a round and return its figures."""
    admin = redis.Redis(port=port)
    admin.flushall()
    hot = Hot(way, port)
    for n, of in enumerate(hot.all):
        admin.set(of.name, of.value, px=EARLY_MS + n * (KEEP_MS - EARLY_MS) // KEYS + 1)
    before, began = seen(admin), time.monotonic()
    Raw.sent = 0
    asyncio.run(hot.play())
    seconds = time.monotonic() - began
    cpu_ms = seen(admin)[1] - before[1]
    waits = sorted(hot.waits_ms)
    makings = sum(of.makings for of in hot.all)
    return {
        "makers of a value": makings / sum(of.alone for of in hot.all),
        "values made per s": makings / seconds,
        "GETs per s": len(waits) / seconds,
        "GET p50 ms": waits[len(waits) // 2],
        "GET p99 ms": waits[len(waits) * 99 // 100],
        "GET max ms": waits[-1],
        "commands per s": Raw.sent / seconds,
        "server CPU ms per s": cpu_ms / seconds,
    }
