"""docs/PRODUCTION.md: its commands, its program, and the templates for Kubernetes, on real servers."""

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import kubernetes_validate
import yaml

from .server import running

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "PRODUCTION.md"
TEMPLATES = ROOT / "packaging" / "kubernetes"


def redis_cli(server, words):
    program = f"{os.environ['REDIS_LOCK_SERVERS']}/redis-7.0.15/bin/redis-cli"
    return subprocess.run([program, "-p", str(server.port), *words], capture_output=True, text=True, check=False)


def test_the_commands_of_the_checks(server):
    server.admin.execute_command("ACL", "SETUSER", "worker", "on", "nopass", "~jobs:*", "-@all", "+lock.acquire")
    commands = re.findall(r"\| `redis-cli (.*?)(?: \\\| .*?)?`", PAGE.read_text())
    assert len(commands) == 11
    for command in commands:
        done = redis_cli(server, ["-e", *shlex.split(command)])
        assert done.returncode == 0, done
        assert done.stdout.strip(), command


def test_a_process_that_is_told_to_end_releases(server, tmp_path):
    (program,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    work = "def work(fence):\n    print('at work', flush=True)\n    signal.pause()\n"
    file = tmp_path / "program.py"
    file.write_text(work + program.replace("redis.Redis()", f"redis.Redis(port={server.port})"))
    with subprocess.Popen([sys.executable, file], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "at work\n"
        assert server.admin.exists("jobs:42")
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 143
    assert not server.admin.exists("jobs:42")


def documents(name):
    """What is in a template, which has to be as Kubernetes wants it."""
    found = list(yaml.safe_load_all((TEMPLATES / name).read_text()))
    for document in found:
        kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)
    return found


def module():
    """Where the image has it."""
    (folder,) = re.findall(r"target/release/libredis_lock\.so (\S+/)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    return f"{folder}libredis_lock.so"


def mounts(container):
    return {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}


def is_ours(image):
    names = (ROOT / "packaging" / "names").read_text()
    return f"image {image.partition(':')[0]}\n" in names


def test_the_server_of_the_template(shared_server):
    config, service, pods = documents("statefulset.yaml")
    (container,) = pods["spec"]["template"]["spec"]["containers"]
    assert is_ours(container["image"])
    (file,) = config["data"]
    assert container["args"] == [f"{mounts(container)['config']}/{file}"]
    assert service["metadata"]["name"] == pods["spec"]["serviceName"]
    assert service["spec"]["selector"] == pods["spec"]["template"]["metadata"]["labels"]
    lines = [line.split() for line in config["data"][file].splitlines() if not line.startswith("#")]
    loads, *settings = lines
    assert loads[:2] == ["loadmodule", module()]
    words = [*loads[2:], *(word for name, *values in settings for word in (f"--{name}", *values))]
    with (
        running(shared_server.version, *words) as server,
        running(shared_server.version, with_module=False) as bare,
    ):
        assert server.admin.config_get("lock.guard") == {"lock.guard": "restart"}
        assert server.admin.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
        for probe in ("startupProbe", "readinessProbe"):
            program, *command = container[probe]["exec"]["command"]
            assert program == "redis-cli"
            assert redis_cli(server, command).returncode == 0
            assert redis_cli(bare, command).returncode != 0


def test_the_module_that_an_init_container_brings(shared_server):
    (pod,) = documents("init-container.yaml")
    (brings,), (container,) = pod["spec"]["initContainers"], pod["spec"]["containers"]
    (volume,) = pod["spec"]["volumes"]
    assert is_ours(brings["image"])
    assert not is_ours(container["image"])
    assert brings["command"] == ["cp", module(), f"{mounts(brings)[volume['name']]}/"]
    option, path, *words = container["args"]
    assert (option, path) == ("--loadmodule", f"{mounts(container)[volume['name']]}/libredis_lock.so")
    with running(shared_server.version, *words) as server:
        assert server.admin.config_get("lock.guard") == {"lock.guard": "failover"}


def test_all_templates_are_tested():
    assert {path.name for path in TEMPLATES.iterdir()} == {"statefulset.yaml", "init-container.yaml"}
