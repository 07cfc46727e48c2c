"""Starts what compose.yaml names, with its words, and sees that a lock reaches Prometheus.

    compose.py FOLDER-OF-THE-SERVER MODULE

There are no containers: the programs are those of this machine, the names of services are this machine's loopback, and
what is mounted is read where it lies. Grafana is in no registry of packages, so its files are only read.
"""

import contextlib
import json
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def wait_for(what, bound_s=40.0):
    end = time.monotonic() + bound_s
    while True:
        try:
            if result := what():
                return result
        except OSError:
            pass
        assert time.monotonic() < end, "it takes too long"
        time.sleep(0.2)


def main() -> None:
    bin_folder, module = Path(sys.argv[1]), sys.argv[2]
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text())
    services = compose["services"]
    # Where a file is inside a container, and where it is here.
    places = {}
    for name, service in services.items():
        for volume in service.get("volumes", ()):
            here, inside = volume.split(":")[:2]
            if here.startswith("."):
                assert (ROOT / here).is_file(), f"{name} mounts {here}, which is not there"
                places[inside] = str(ROOT / here)
        for port in service.get("ports", ()):
            assert port.startswith("127.0.0.1:"), f"{name} listens for all: {port}"
        for other in service.get("depends_on", ()):
            assert other in services, f"{name} depends on {other}"
    ports = {name: free_port() for name in ("server", "exporter", "prometheus")}

    def words(service: str, *more: str) -> list[str]:
        """The service's arguments, in the terms of this machine."""
        result = [*services[service]["command"], *more]
        for inside, here in places.items():
            result = [word.replace(inside, here) for word in result]
        return [word.replace("redis://server:6379", f"redis://127.0.0.1:{ports['server']}") for word in result]

    with contextlib.ExitStack() as stack:
        temp = stack.enter_context(tempfile.TemporaryDirectory())

        def start(*line: str) -> None:
            log = stack.enter_context(open(Path(temp) / f"{Path(line[0]).name}.log", "wb"))
            process = subprocess.Popen(line, stdout=log, stderr=log, cwd=temp)
            stack.callback(process.wait)
            stack.callback(process.terminate)

        def ask(path: str, **arguments: str):
            url = f"http://127.0.0.1:{ports['prometheus']}/api/v1/{path}?{urllib.parse.urlencode(arguments)}"
            with urllib.request.urlopen(url) as reply:
                return json.load(reply)["data"]

        def cli(*line: str) -> str:
            done = subprocess.run([bin_folder / "redis-cli", "-p", str(ports["server"]), *line], capture_output=True, text=True)
            return done.stdout.strip()

        image_module = "/usr/local/lib/redis-lock/libredis_lock.so"
        dockerfile = (ROOT / "Dockerfile").read_text()
        assert f'CMD ["--loadmodule", "{image_module}"]' in dockerfile
        assert image_module in services["server"]["command"], "the module is not loaded"
        places[image_module] = module
        start(str(bin_folder / "redis-server"), *words("server", "--port", str(ports["server"]), "--bind", "127.0.0.1"))
        wait_for(lambda: cli("PING") == "PONG")
        assert int(cli("LOCK.ACQUIRE", "jobs:42", "worker-a", "600000")) > 0
        start("prometheus-redis-exporter", *words("exporter", f"--web.listen-address=127.0.0.1:{ports['exporter']}"))

        config = (Path(places["/etc/prometheus/prometheus.yml"])).read_text()
        assert "exporter:9121" in config
        config = config.replace("exporter:9121", f"127.0.0.1:{ports['exporter']}").replace("5s", "1s")
        # The rules lie beside it.
        Path(temp, "prometheus.yml").write_text(config)
        Path(temp, "alerts.yml").write_text(Path(places["/etc/prometheus/alerts.yml"]).read_text())
        places["/etc/prometheus/prometheus.yml"] = str(Path(temp, "prometheus.yml"))
        subprocess.run(["promtool", "check", "config", f"{temp}/prometheus.yml"], check=True, stdout=subprocess.DEVNULL)
        start("prometheus", *words("prometheus"), f"--web.listen-address=127.0.0.1:{ports['prometheus']}", f"--storage.tsdb.path={temp}/data")

        held = wait_for(lambda: ask("query", query='redis_script_values{key="lock_held_keys"}')["result"])
        assert held[0]["value"][1] == "1", held
        rules = [rule["name"] for group in ask("rules")["groups"] for rule in group["rules"]]
        assert "LockModuleMissing" in rules, rules

    dashboard = json.loads(Path(places["/etc/redis-lock/dashboard.json"]).read_text())
    sources = yaml.safe_load(Path(places["/etc/grafana/provisioning/datasources/redis-lock.yml"]).read_text())["datasources"]
    assert [source["type"] for source in sources] == ["prometheus"] and sources[0]["url"] == "http://prometheus:9090"
    asked = [one for one in dashboard["templating"]["list"] if one["type"] == "datasource"]
    assert asked and asked[0]["query"] == "prometheus", "the dashboard asks for another source"
    providers = yaml.safe_load(Path(places["/etc/grafana/provisioning/dashboards/redis-lock.yml"]).read_text())["providers"]
    assert providers[0]["options"]["path"] == "/etc/redis-lock"
    print(f"monitoring: a lock taken on the server of compose.yaml is seen by its Prometheus, with {len(rules)} rules; Grafana was not started")


main()
