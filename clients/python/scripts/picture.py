"""Records README's program in two terminals, the first of them killed, and draws ../../docs/half-minute.svg."""

import html
import os
import pty
import re
import select
import signal
import sys
import tempfile
import time
from pathlib import Path

from tests.server import running

ROOT = Path(__file__).parents[3]
LONGEST = 30.0
# For how many seconds all lines are seen before they come one by one, for those who see the first frame only.
SHOWN = 5.0
COLUMNS, ROWS, CHARACTER, LINE = 50, 4, 8.4, 22
# Dark on any page: an image does not know the theme of the page around it.
STYLE = """
svg { font: 14px "DejaVu Sans Mono", Menlo, Consolas, monospace; }
text { fill: #dcdfe4; white-space: pre; } .time, .title { fill: #a8b0bd; } .typed { fill: #98c379; }
@media (prefers-reduced-motion: no-preference) { .line { animation: %gs step-end infinite; } }
"""


def record(terminals: list[list[tuple[float, str]]], folder: str) -> list[list[tuple[float, str]]]:
    """Return the lines of each terminal with their times. A terminal is what is typed there, and when."""
    shells = []
    for _ in terminals:
        pid, end = pty.fork()
        if pid == 0:
            os.chdir(folder)
            path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
            os.execve("/bin/bash", ["bash", "--norc", "-b", "-i"], {"PATH": path, "PS1": "", "TERM": "dumb"})
        shells.append((pid, end))
    began = time.monotonic()
    todo = sorted((at, n, words) for n, typed in enumerate(terminals) for at, words in typed)
    raw: list[list[tuple[float, str]]] = [[] for _ in terminals]
    while (now := time.monotonic() - began) < LONGEST:
        while todo and todo[0][0] <= now:
            _, n, words = todo.pop(0)
            os.write(shells[n][1], f"{words}\n".encode())
        ready, _, _ = select.select([end for _, end in shells], [], [], 0.05)
        for n, (_, end) in enumerate(shells):
            if end in ready:
                raw[n].append((time.monotonic() - began, os.read(end, 4096).decode()))
    for pid, end in shells:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(end)
    return [lines_of(chunks, {words for _, words in typed}) for chunks, typed in zip(raw, terminals, strict=True)]


def lines_of(chunks: list[tuple[float, str]], typed: set[str]) -> list[tuple[float, str]]:
    """Join what was read to lines, each with the time of its last character, and a prompt before what was typed."""
    lines, rest = [], ""
    for at, text in chunks:
        *whole, rest = (rest + text).replace("\r", "").split("\n")
        lines += [(at, f"$ {line}" if line in typed else line) for line in whole]
    return lines


def draw(terminals: list[list[tuple[float, str]]]) -> str:
    """Return an SVG in which each line comes at its time, and all are there where nothing moves."""
    width, height = round((COLUMNS + 8) * CHARACTER) + 32, (ROWS + 2) * LINE
    frames, body = [], []
    for n, lines in enumerate(terminals):
        top = n * (height + 12)
        body.append(f'<rect y="{top}" width="{width}" height="{height}" rx="8" fill="#1e2026" stroke="#6b7280"/>')
        body.append(f'<text class="title" x="16" y="{top + LINE}">terminal {n + 1}</text>')
        for row, (at, line) in enumerate(lines):
            assert len(line) <= COLUMNS, line
            y, name = top + (row + 2) * LINE + 4, f"l{n}{row}"
            gone, back = SHOWN / (SHOWN + LONGEST), (SHOWN + at) / (SHOWN + LONGEST)
            frames.append(f"@keyframes {name} {{ {gone:.2%} {{ opacity: 0; }} {back:.2%} {{ opacity: 1; }} }}")
            kind = ' class="typed"' if line.startswith("$ ") else ""
            body.append(
                f'<g class="line" style="animation-name: {name}"><text class="time" x="16" y="{y}">{at:5.1f} s</text>'
                f'<text{kind} x="{16 + 8 * CHARACTER}" y="{y}">{html.escape(line)}</text></g>'
            )
    everything = 2 * height + 12
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {everything}" width="{width}" role="img">\n'
        "<title>The first program is killed, and the second has its lock</title>\n"
        f"<style>{STYLE % (SHOWN + LONGEST)}{chr(10).join(frames)}</style>\n{chr(10).join(body)}\n</svg>\n"
    )


def main() -> None:
    """Record and draw."""
    (program,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    with running("redis-7.0.15") as server, tempfile.TemporaryDirectory() as folder:
        Path(folder, "first.py").write_text(program.replace("port=6379", f"port={server.port}"))
        typed = [(0.5, "python first.py & sleep 5; kill -9 $!")], [(2.0, "python first.py")]
        terminals = record(list(typed), folder)
    told = [[line.split()[0] for _, line in lines] for lines in terminals]
    assert told == [["$", "[1]", "has", "[1]+"], ["$", "has", "done,"]], terminals
    (ROOT / "docs" / "half-minute.svg").write_text(draw(terminals))


main()
