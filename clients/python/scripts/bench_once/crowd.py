"""Many clients want one value that is not there."""

import asyncio
import contextlib
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import redis
import redis.asyncio

from .ways import WAYS, Dogpile, GoneError, Raw, Wanted

T = TypeVar("T")

MAKING = 0.5
# So long that all wait by then.
TURNS_MAKING = 2


def seen(admin: redis.Redis) -> list[float]:
    """Return how many commands the server has run, its CPU in ms, and the KB of its network."""
    info: dict[str, Any] = admin.info("everything")
    calls = sum(stats["calls"] for name, stats in info.items() if name.startswith("cmdstat_"))
    cpu = info["used_cpu_user"] + info["used_cpu_sys"]
    return [calls, cpu * 1_000, (info["total_net_input_bytes"] + info["total_net_output_bytes"]) / 1_000]


async def play_async(way: str, port: int, of: Wanted, clients: int, look: Callable[[], T]) -> tuple[float, float, T, T]:
    """Return when the clients asked, when the last one had its answer, and what was seen at the server then."""
    is_raw = way != "redis-py"
    all_of: list[Any] = [await Raw.connect(port) if is_raw else redis.asyncio.Redis(port=port) for _ in range(clients)]
    if not is_raw:
        await asyncio.gather(*(client.ping() for client in all_of))
    answered: list[float] = []

    async def want(n: int) -> None:
        with contextlib.suppress(GoneError):
            await WAYS[way](all_of[n], of, f"t{n}")
            answered.append(time.monotonic())

    Raw.sent, before, began = 0, look(), time.monotonic()
    await asyncio.gather(*(want(n) for n in range(clients)))
    played = began, max(answered), before, look()
    for client in all_of:
        client.writer.close() if is_raw else await client.aclose()
    return played


def play(way: str, port: int, size: int, clients: int, first: str) -> dict[str, float]:
    """Play a round, in which this becomes of the first maker, and return its figures."""
    admin = redis.Redis(port=port)
    admin.flushall()
    of = Wanted("v", b"v" * size, MAKING, first)
    if way == "dogpile":
        crowd = Dogpile(port, clients)
        before, began = seen(admin), time.monotonic()
        last, after = crowd.play(of), seen(admin)
    else:
        began, last, before, after = asyncio.run(play_async(way, port, of, clients, lambda: seen(admin)))
    assert of.made_at
    commands, cpu_ms, kb = (now - then for then, now in zip(before, after, strict=True))
    return {
        "values made": of.makings,
        "all answered after ms": (last - began) * 1_000,
        "last answer after the value ms": (last - of.made_at) * 1_000,
        "commands": commands if way in ("redis-py", "dogpile") else Raw.sent,
        "server CPU ms": cpu_ms,
        "network KB": kb,
    }


def play_turns(way: str, port: int, size: int, clients: int, turns: Path) -> dict[str, float]:
    """Return the longest turn of the server's event loop in which the clients that wait are answered."""
    redis.Redis(port=port).flushall()
    of = Wanted("v", b"v" * size, TURNS_MAKING)
    # The figures are those of benches/turns.c, and 0 begins them anew.
    of.before_it_is_told = lambda: turns.write_bytes(bytes(32))
    *_, after = asyncio.run(play_async(way, port, of, clients, turns.read_bytes))
    cpu_ns, _, long_ones, _ = struct.unpack("4Q", after)
    return {"values made": of.makings, "longest turn CPU ms": cpu_ns / 1e6, "turns above 10 ms": long_ones}
