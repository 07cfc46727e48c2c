"""The documents that are written: all figures, and the tables for users."""

import os
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).parents[4]
FILE = ROOT / "docs/benchmarks/once.tsv"
PAGE = FILE.with_suffix(".md")
HEAD = "way\tsituation\tbytes\tfigure\tmedian\tlow\thigh"
MARK = "<!-- Below this line `make -C clients/python bench-once` writes. -->\n"
# By the names of the ways.
WAYS = {
    "once": "LOCK.ONCE",
    "pubsub": "Pub/Sub",
    "polling": "polling",
    "redis-py": "redis-py",
    "dogpile": "dogpile",
    "expiry": "no lock",
}

# What each line shows of a situation, by the names of the figures.
CROWD = "{values made:,.0f}, {all answered after ms:,.0f}"
CROWD_LINES = {
    "made, ms until all are answered": ("cold", "100", ""),
    "cold, 100 bytes": ("cold", "100", CROWD),
    "cold, 100 KB": ("cold", "100000", CROWD),
    "failing": ("failing", "100", CROWD),
    "killed": ("killed", "100", CROWD),
    "silent": ("silent", "100", CROWD),
    "commands": ("cold", "100", "{commands:,.0f}"),
    "server CPU ms, 100 bytes": ("cold", "100", "{server CPU ms:,.0f}"),
    "server CPU ms, 10 KB": ("cold", "10000", "{server CPU ms:,.0f}"),
    "longest turn, ms": ("turns", "10000", "{longest turn CPU ms:.1f}"),
}
HOT_LINES = {
    "hot values": ("refreshed", "100", ""),
    "makers of each": ("refreshed", "100", "{makers of a value:.1f}"),
    "GET p50, p99, max ms": ("refreshed", "100", "{GET p50 ms:.1f}, {GET p99 ms:.1f}, {GET max ms:.0f}"),
    "server CPU ms per s": ("refreshed", "100", "{server CPU ms per s:.0f}"),
}


def rows() -> list[list[str]]:
    """Return those of the file."""
    return [line.split("\t") for line in FILE.read_text().splitlines()[1:]] if FILE.exists() else []


def add(way: str, situation: str, size: str, spread: dict[str, tuple[float, ...]]) -> None:
    """Put figures into the file, in place of those that were measured before."""
    of = [way, situation, size]
    new = [
        [*of, name, *(f"{value:.4g}" if value < 1_000 else f"{value:.0f}" for value in told)]
        for name, told in spread.items()
    ]
    kept = [row for row in rows() if row[:3] != of] + new
    kept.sort(key=lambda row: (row[1], int(row[2]), [*WAYS].index(row[0])))
    FILE.write_text("\n".join([HEAD, *("\t".join(row) for row in kept), ""]))
    print(*("\t".join(row) for row in new), sep="\n", flush=True)


def table(lines: dict[str, tuple[str, str, str]]) -> str:
    """Return a table of the medians. Its head has the ways that were measured in the situation of the first line."""
    medians: dict[tuple[str, ...], dict[str, float]] = {}
    for way, situation, size, name, median, *_ in rows():
        medians.setdefault((situation, size, way), {})[name] = float(median)
    (head, (*first, _)), *rest = lines.items()
    ways = [way for way in WAYS if (*first, way) in medians]
    told = [[head, *(WAYS[way] for way in ways)], ["---", *("---:" for _ in ways)]]
    for label, (situation, size, cell) in rest:
        all_of = [medians.get((situation, size, way)) for way in ways]
        told.append([label, *(cell.format_map(figures) if figures else "" for figures in all_of)])
    return "".join(f"| {' | '.join(line)} |\n" for line in told)


def write(version: str) -> None:
    """Write the tables of the page, and where they were measured. The module's folder tells its commit."""
    module = Path(os.environ.get("REDIS_LOCK_MODULE", ROOT / "target/release/libredis_lock.so"))
    said = subprocess.run(
        ["git", "log", "-1", "--format=%h", "--", ":/core", ":/src", ":/Cargo.lock"],
        cwd=module.parent,
        capture_output=True,
        text=True,
        check=True,
    )
    model = next(line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name"))
    measured = (
        f"{version}, commit {said.stdout.strip()}, {time.strftime('%F')}, {os.cpu_count()} x {model.split(': ')[1]}."
    )
    above = PAGE.read_text().split(MARK)[0]
    PAGE.write_text("\n".join([above + MARK, measured, "", table(CROWD_LINES), table(HOT_LINES)]))
