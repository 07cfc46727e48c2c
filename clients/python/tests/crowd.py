"""Processes that hold the same keys in turns, and count how many are inside: `python -m tests.crowd`, by `crowd`."""

import asyncio
import contextlib
import itertools
import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import redis
import redis.asyncio

import redis_lock_client
import redis_lock_client.asyncio as ours

# What a hold does: as long as real work, and not always as long.
SHORTEST, LONGEST = 0.02, 0.08


def crowd(port: int, what: str, name_sets: list[Any], seconds: float = 2.5, **lock: Any) -> dict[str, list[int]]:
    """Let three processes of six workers each hold the names in turns. Return for each name how many were inside."""
    job = json.dumps({"port": port, "what": what, "name_sets": name_sets, "seconds": seconds, "lock": lock})
    folder = Path(__file__).parent.parent
    command = [sys.executable, "-m", "tests.crowd", job]
    processes = [subprocess.Popen(command, cwd=folder) for _ in range(3)]
    assert [process.wait(40) for process in processes] == [0, 0, 0]
    with redis.Redis(port=port) as client:
        keys: list[Any] = client.keys("seen:*")
        return {key.decode()[5:]: [int(number) for number in client.lrange(key, 0, -1)] for key in keys}


def main() -> None:
    """Work in three threads and three tasks until the time is over."""
    job = json.loads(sys.argv[1])
    end = time.monotonic() + job["seconds"]
    threads = [threading.Thread(target=in_thread, args=(job, end)) for _ in range(3)]
    for thread in threads:
        thread.start()
    asyncio.run(in_tasks(job, end))
    for thread in threads:
        thread.join()


def turns(job: Any, end: float) -> Iterable[tuple[Any, list[str]]]:
    """The names to hold next, until the time is over, each with the list of the keys."""
    first = random.randrange(len(job["name_sets"]))
    for names in itertools.islice(itertools.cycle(job["name_sets"]), first, None):
        if time.monotonic() > end:
            return
        yield names, [names] if isinstance(names, str) else names


def in_thread(job: Any, end: float) -> None:
    with redis.Redis(port=job["port"]) as client:
        for names, keys in turns(job, end):
            with getattr(redis_lock_client, job["what"])(client, names, timeout=30, **job["lock"]), inside(job, keys):
                time.sleep(random.uniform(SHORTEST, LONGEST))


async def in_tasks(job: Any, end: float) -> None:
    async def work(wait: str) -> None:
        for names, keys in turns(job, end):
            lock = getattr(ours, job["what"])(client, names, timeout=30, wait=wait, **job["lock"])
            async with lock:
                with inside(job, keys):
                    await asyncio.sleep(random.uniform(SHORTEST, LONGEST))

    async with redis.asyncio.Redis(port=job["port"]) as client:
        await asyncio.gather(work("block"), work("notify"), work("notify"))


@contextlib.contextmanager
def inside(job: Any, keys: list[str]) -> Any:
    """Count this worker in, note how many are there, and count it out."""
    with redis.Redis(port=job["port"]) as counter:
        for key in keys:
            counter.rpush(f"seen:{key}", counter.incr(f"inside:{key}"))
        yield
        for key in keys:
            counter.decr(f"inside:{key}")


if __name__ == "__main__":
    main()
