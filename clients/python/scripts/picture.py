"""Records README's program in two terminals, the first of them killed, and draws ../../docs/half-minute.svg."""

import html
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from subprocess import PIPE

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


def record(typed: list[tuple[float, str]], folder: str) -> list[tuple[float, str]]:
    """Type words into a terminal, each at its time. Return its lines and their times, the words with a prompt."""
    lines: list[tuple[float, str]] = []
    words_typed = {words for _, words in typed}
    environment = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PS1": "", "TERM": "dumb"}
    command = ["script", "--quiet", "--flush", "--command", "bash --norc -b -i", "/dev/null"]
    began = time.monotonic()
    with subprocess.Popen(command, cwd=folder, env=environment, stdin=PIPE, stdout=PIPE, text=True, bufsize=1) as shell:
        assert shell.stdin
        assert shell.stdout
        for at, words in typed:
            threading.Timer(at, shell.stdin.write, [f"{words}\n"]).start()
        threading.Timer(LONGEST, shell.kill).start()
        for line in filter(None, map(str.strip, shell.stdout)):
            lines.append((time.monotonic() - began, f"$ {line}" if line in words_typed else line))
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
    (program,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    with running("redis-7.0.15") as server, tempfile.TemporaryDirectory() as folder:
        Path(folder, "first.py").write_text(program.replace("port=6379", f"port={server.port}"))
        typed = [(0.5, "python first.py & sleep 5; kill -9 $!")], [(2.0, "python first.py")]
        with ThreadPoolExecutor() as pool:
            terminals = list(pool.map(lambda words: record(words, folder), typed))
    told = [[line.split()[0] for _, line in lines] for lines in terminals]
    assert told == [["$", "[1]", "has", "[1]+"], ["$", "has", "done,"]], terminals
    (ROOT / "docs" / "half-minute.svg").write_text(draw(terminals))


main()
