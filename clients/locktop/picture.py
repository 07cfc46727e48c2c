"""Runs locktop over two servers with clients at work, and draws its screen as SVG.

picture.py LOCKTOP SVG
"""

import os
import random
import subprocess
import sys
import tempfile
import threading
import time

import redis
from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

COLUMNS, LINES = 120, 18
PORTS = {"redis-7.0.15": 7001, "valkey-9": 7002}

# No font is named that is not on the reader's machine, and nothing is fetched.
SVG = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg" role="img">
<title>locktop over two servers</title>
<style>
.{unique_id}-matrix {{ font-family: "DejaVu Sans Mono", Menlo, Consolas, monospace; font-size: {char_height}px; line-height: {line_height}px; font-variant-east-asian: full-width; }}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal"><rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" /></clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""
NORMAL = [(30, 30, 30), (240, 113, 120), (152, 195, 121), (229, 192, 123), (97, 175, 239), (216, 150, 240), (86, 182, 194), (220, 223, 228)]
THEME = TerminalTheme((30, 32, 38), (220, 223, 228), NORMAL, NORMAL)


def start(root, server, port, folder):
    servers = os.environ.get("REDIS_LOCK_SERVERS", os.path.join(root, ".servers"))
    words = [os.path.join(servers, server, "bin", "server"), "--bind", "127.0.0.1"]
    words += ["--port", str(port), "--save", "", "--dir", folder, "--loadmodule", os.environ.get(
        "REDIS_LOCK_MODULE", os.path.join(root, "target/release/libredis_lock.so"))]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    end = time.monotonic() + 20
    while True:
        try:
            info = redis.Redis(port=port).info("server")
            assert info["process_id"] == process.pid, f"another server is at port {port}"
            return process
        except redis.ConnectionError:
            assert time.monotonic() < end and process.poll() is None, f"{server} did not start"
            time.sleep(0.05)


def worker(port, key, name, command, hold, pause, dies=0.0):
    """Takes a lock again and again; now and then it dies, and its ttl ends the hold."""
    connection = redis.Redis(port=port)
    chance = random.Random(name + key)
    ttl = "1500" if dies else "30000"
    words = [*command, key, name, ttl]
    if command[0] == "LIMIT":
        words = ["LOCK.ACQUIRE", key, name, ttl, "LIMIT", command[1]]
    try:
        while True:
            if connection.execute_command(*words, "BLOCK", "60000") is not None:
                time.sleep(hold * chance.uniform(0.5, 1.5))
                if chance.random() >= dies:
                    connection.execute_command("LOCK.RELEASE", key, name)
            time.sleep(pause * chance.uniform(0.5, 1.5))
    except redis.ConnectionError:
        pass  # The picture is taken, and the server has ended.


def load(first, second):
    exclusive, read, write = ["LOCK.ACQUIRE"], ["RWLOCK.RLOCK"], ["RWLOCK.WLOCK"]
    workers = []

    def add(count, port, key, prefix, *rest):
        workers.extend((port, key, f"{prefix}-{n}", *rest) for n in range(count))

    add(9, first, "orders:42", "checkout", exclusive, 0.08, 0.01)
    add(5, first, "stock:1077", "picker", exclusive, 0.25, 0.05, 0.2)
    add(6, first, "pages:front", "reader", read, 0.1, 0.05)
    add(1, first, "pages:front", "editor", write, 0.2, 0.3)
    add(12, second, "mail:pool", "sender", ["LIMIT", "4"], 0.6, 0.02)
    add(3, second, "invoices:2026-11", "billing", exclusive, 0.9, 0.1, 0.15)
    add(4, second, "accounts:7", "transfer", exclusive, 0.02, 0.01)
    add(2, second, "reports:daily", "report-host", exclusive, 5.0, 0.1)
    # This one has died, and its lease goes on. So the picture has what is stuck.
    redis.Redis(port=first).execute_command("LOCK.ACQUIRE", "exports:nightly", "exporter-1", "18000")
    add(2, first, "exports:nightly", "exporter-next", exclusive, 1.0, 0.1)
    for each in workers:
        threading.Thread(target=worker, args=each, daemon=True).start()


def screen(locktop, folder, addresses):
    tmux = ["tmux", "-u", "-f", "/dev/null", "-S", os.path.join(folder, "socket")]
    environment = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "TMUX")}

    def run(*words):
        return subprocess.run([*tmux, *words], check=True, capture_output=True, env=environment).stdout.decode()

    run("new-session", "-d", "-x", str(COLUMNS), "-y", str(LINES), os.path.abspath(locktop), *addresses)
    try:
        time.sleep(6)
        return run("capture-pane", "-e", "-p")
    finally:
        run("kill-server")


def draw(text, path):
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        console = Console(record=True, width=COLUMNS, file=nowhere, force_terminal=True, color_system="standard")
        console.print(Text.from_ansi(text.rstrip("\n")))
        svg = console.export_svg(title="locktop", theme=THEME, code_format=SVG, unique_id="locktop")
    assert "http" not in svg.replace("http://www.w3.org/2000/svg", ""), "it would fetch something"
    with open(path, "w", encoding="utf-8") as file:
        file.write(svg)


def main():
    locktop, path = sys.argv[1:]
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
    processes = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            for server, port in PORTS.items():
                processes.append(start(root, server, port, folder))
            load(*PORTS.values())
            time.sleep(8)
            text = screen(locktop, folder, [f"127.0.0.1:{port}" for port in PORTS.values()])
        finally:
            for process in processes:
                process.kill()
                process.wait()
    draw(text, path)


main()
