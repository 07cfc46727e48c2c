"""Draws the panels of dashboard.json from real series: a server with the module under load, redis_exporter, Prometheus.

    picture.py SERVER MODULE PROMETHEUS EXPORTER OUT [SECONDS]      writes OUT.svg and OUT-dark.svg

Grafana itself is in no registry of packages that this project uses, so its panels are drawn by matplotlib: the same
expressions, asked of the same Prometheus.
"""

import json
import os
import random
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request
import uuid
from pathlib import Path

import redis

HERE = Path(__file__).resolve().parent.parent
sys.path.append(str(HERE.parent.parent / "scripts/plots"))
import theme  # noqa: E402  (after the path to it)
import matplotlib.pyplot as plt  # noqa: E402
from cycler import cycler  # noqa: E402

# Of scripts/plots/theme.py.
COLOURS = [theme.OURS, "BLPOP signal", "SET + EVALSHA", "poll 10 ms", "poll 100 ms", "SET + DEL", "BLPOP / LPUSH", "node-redlock"]
# Prometheus asks once a second here, so that a short run has many points.
RATE_INTERVAL = "10s"


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def wait_for(what, bound_s=30.0):
    end = time.monotonic() + bound_s
    while True:
        try:
            return what()
        except Exception:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)


class Load:
    """Orders that are worked on one after the other, a page that is read more than written, and owners that die."""

    def __init__(self, port: int, seconds: float):
        self.port, self.end = port, time.monotonic() + seconds
        self.begin = time.monotonic()

    def busy(self) -> float:
        """How much is to be done now: it comes in waves, and more of it in the second half."""
        at = (time.monotonic() - self.begin) / (self.end - self.begin)
        return (0.3 + at) * (1.2 if int(at * 8) % 2 else 0.7)

    def work(self, seed: int) -> None:
        dice = random.Random(seed)
        client = redis.Redis(port=self.port, socket_timeout=60)
        while time.monotonic() < self.end:
            token = str(uuid.UUID(int=dice.getrandbits(128)))
            if dice.random() < 0.5:
                key, take = f"order:{dice.randrange(4)}", "LOCK.ACQUIRE"
            else:
                key, take = "page:7", dice.choice(["RWLOCK.RLOCK"] * 9 + ["RWLOCK.WLOCK"])
            block = ["BLOCK", dice.choice([200, 2000])] if dice.random() < 0.9 else []
            if client.execute_command(take, key, token, 500, *block) is None:
                continue
            time.sleep(dice.expovariate(1 / 0.02))
            fate = dice.random()
            if fate < 0.01:
                continue  # It dies, and the others wait for the deadline.
            if fate < 0.2:
                client.execute_command("LOCK.RENEW", key, token, 500)
                time.sleep(0.01)
            if fate > 0.998:
                client.delete(key)  # An operator is impatient.
            client.execute_command("LOCK.RELEASE", key, token)
            time.sleep(dice.expovariate(self.busy() / 0.05))

    def run(self) -> None:
        workers = [threading.Thread(target=self.work, args=(seed,)) for seed in range(24)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()


def asked(prometheus: int, expression: str, begin: float, end: float):
    expression = expression.replace("$__rate_interval", RATE_INTERVAL).replace("$instance", ".*")
    query = {"query": expression, "start": begin, "end": end, "step": 1}
    url = f"http://127.0.0.1:{prometheus}/api/v1/query_range?{urllib.parse.urlencode(query)}"
    with urllib.request.urlopen(url, timeout=30) as reply:
        return json.load(reply)["data"]["result"]


def panels(prometheus: int, begin: float, end: float):
    """The title, the unit and the series of each panel."""
    found = []
    for panel in json.loads((HERE / "dashboard.json").read_text())["panels"]:
        drawn = []
        # Series with an axis of their own, on the right.
        right = [each["matcher"]["options"].strip("/") for each in panel["fieldConfig"].get("overrides", [])]
        for target in panel["targets"]:
            for series in asked(prometheus, target["expr"], begin, end):
                # There is one server here, and nothing to tell apart.
                name = target["legendFormat"].removesuffix(" {{instance}}")
                name = name.replace("{{cmd}}", series["metric"].get("cmd", ""))
                points = [(float(at) - begin, float(value)) for at, value in series["values"]]
                drawn.append((name, points, any(re.match(each, name) for each in right)))
        assert drawn, f"no series for {panel['title']}"
        found.append((panel["title"], panel["fieldConfig"]["defaults"]["unit"], drawn))
    return found


def draw(found, seconds: float, out: Path) -> None:
    for look in theme.themes():
        colours = cycler(color=[look.colour(name) for name in COLOURS])
        rows = (len(found) + 1) // 2
        figure, axes = plt.subplots(rows, 2, figsize=(12, 2.7 * rows), layout="constrained")
        for axis in axes.flat[len(found) :]:
            axis.remove()
        for (title, unit, drawn), axis in zip(found, axes.flat, strict=False):
            lines, colour = [], iter(colours)
            for name, points, is_right in drawn:
                at = axis.twinx() if is_right else axis
                lines += at.plot(*zip(*points, strict=True), label=name, linewidth=1.4, color=next(colour)["color"])
                if is_right:
                    at.grid(False)
                    at.set_ylabel("ms")
                    at.set_ylim(0, at.get_ylim()[1] * 1.35)
            axis.set_title(title)
            label, scale = {"short": ("", 1), "ops": ("per second", 1), "µs": ("ms", 1e-3), "s": ("µs", 1e6)}[unit]
            axis.set_ylabel(label)
            axis.yaxis.set_major_formatter(lambda value, _, scale=scale: f"{value * scale:g}")
            # Room for the legend above the lines.
            axis.set_ylim(0, axis.get_ylim()[1] * 1.35)
            axis.set_xlim(0, seconds)
            axis.legend(handles=lines, loc="upper left", ncols=3, fontsize=9)
        for axis in axes[-1]:
            axis.set_xlabel("seconds")
        theme.write(figure, look, out, "Drawn from a run.")


def main() -> None:
    server, module, prometheus, exporter, out = sys.argv[1:6]
    seconds = float(sys.argv[6]) if len(sys.argv) > 6 else 240.0
    ports = {name: free_port() for name in ("server", "exporter", "prometheus")}
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "prometheus.yml"
        config.write_text(
            "global: {scrape_interval: 1s, evaluation_interval: 1s}\n"
            f"rule_files: [{HERE / 'alerts.yml'}]\n"
            "scrape_configs:\n"
            f"  - job_name: redis\n    static_configs: [{{targets: ['127.0.0.1:{ports['exporter']}']}}]\n"
        )
        commands = [
            [server, "--port", ports["server"], "--bind", "127.0.0.1", "--save", "", "--dir", folder, "--loadmodule", module,
             *"guard restart max-ttl 20000".split()],
            [exporter, "--redis.addr", f"redis://127.0.0.1:{ports['server']}", "--script", HERE / "redis-lock.lua",
             "--web.listen-address", f"127.0.0.1:{ports['exporter']}"],
            [prometheus, f"--config.file={config}", f"--storage.tsdb.path={folder}/data",
             f"--web.listen-address=127.0.0.1:{ports['prometheus']}"],
        ]  # fmt: skip
        running = []
        try:
            for command in commands:
                words = [os.fspath(word) if isinstance(word, Path) else str(word) for word in command]
                running.append(subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
                if len(running) == 1:
                    wait_for(lambda: redis.Redis(port=ports["server"]).ping())
            wait_for(lambda: asked(ports["prometheus"], "redis_up", time.time() - 5, time.time())[0])
            begin = time.time()
            Load(ports["server"], seconds).run()
            end = time.time()
            draw(panels(ports["prometheus"], begin, end), end - begin, Path(out))
        finally:
            for process in reversed(running):
                process.terminate()
                process.wait()


main()
