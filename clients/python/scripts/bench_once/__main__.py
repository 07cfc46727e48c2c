"""Measures LOCK.ONCE beside the ways that people use without it, into docs/benchmarks/once.tsv and once.md.

    python -m bench_once [PART…] [--ways once,pubsub,…] [--rounds 5] [--version redis-7.0.15]

The parts are SITUATION:BYTES (all without a word). What is not measured again keeps its rows.

- cold      1,000 clients want one value that is not there. The making takes 500 ms
- failing   the same, but the first maker releases the lock after 100 ms, and has no value
- killed    its connection ends after 100 ms
- silent    its connection stays, and nothing comes from it
- refreshed 10,000 GETs a second of 100 values that live for 2 s. The making takes 100 ms, with LOCK.ONCE from 500 ms
            before the end on
- turns     5,000 wait: the longest turn of the server's event loop in which they are answered

Server and clients have a core each. The ways take turns, round by round. The ways are told in ways.py.
"""

import argparse
import contextlib
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from . import crowd, hot, page
from .ways import WAYS

ROOT = Path(__file__).parents[4]
PARTS = ["cold:100", "cold:10000", "cold:100000", "failing:100", "killed:100", "silent:100"]
PARTS += ["refreshed:100", "turns:10000"]
CLIENTS, WAITERS = 1_000, 5_000


@contextlib.contextmanager
def server(version: str, turns: Path | None) -> Iterator[int]:
    """Run a server on a core of its own, and return its port. It may write the turns of its event loop into a file."""
    more = {}
    if turns:
        library = turns.with_suffix(".so")
        subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", library, ROOT / "benches/turns.c"], check=True)
        turns.write_bytes(bytes(32))
        more = {"LD_PRELOAD": str(library), "TURNS_FILE": str(turns)}
    launcher = subprocess.Popen(
        [sys.executable, ROOT / "clients/testing/servers.py", "server", "--version", version],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **more},
    )
    assert launcher.stdin
    assert launcher.stdout
    port, pid = (int(word) for word in launcher.stdout.readline().split("/"))
    if (os.cpu_count() or 1) > 1:
        os.sched_setaffinity(pid, {0})
        os.sched_setaffinity(0, {1})
    yield port
    launcher.stdin.close()
    launcher.wait()


def play(way: str, situation: str, size: int, port: int, turns: Path) -> dict[str, float]:
    """Play a round and return its figures."""
    if situation == "refreshed":
        return hot.play(way, port)
    if situation == "turns":
        return crowd.play_turns(way, port, size, WAITERS, turns)
    return crowd.play(way, port, size, CLIENTS, "" if situation == "cold" else situation)


def measure(part: str, said: argparse.Namespace, turns: Path) -> None:
    """Measure a part in its ways, which take turns."""
    situation, size = part.split(":")
    possible = {"refreshed": [*hot.WAYS], "turns": ["once", "pubsub"]}.get(situation, [*WAYS, "dogpile"])
    rounds: dict[str, list[dict[str, float]]] = {way: [] for way in possible if way in said.ways.split(",")}
    with server(said.version, turns if situation == "turns" else None) as port:
        for _ in range(said.rounds):
            for way, played in rounds.items():
                played.append(play(way, situation, int(size), port, turns))
    for way, played in rounds.items():
        all_of = {name: [figures[name] for figures in played] for name in played[0]}
        page.add(way, situation, size, {name: (statistics.median(of), min(of), max(of)) for name, of in all_of.items()})


def main() -> None:
    """Measure what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=PARTS)
    parser.add_argument("--ways", default=",".join(page.WAYS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--version", default="redis-7.0.15")
    said = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    with tempfile.TemporaryDirectory() as folder:
        for part in said.parts:
            measure(part, said, Path(folder) / "turns")
    page.write(said.version)


if __name__ == "__main__":
    main()
