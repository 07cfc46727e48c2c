"""The programs of docs/RECIPES.md, docs/PRODUCTION.md and the READMEs, and the templates for Kubernetes."""

import json
import os
import re
import shlex
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import redis
from redis.backoff import ConstantBackoff
from redis.retry import Retry

from redis_lock_client import FingerprintError, Lock, LockNotOwnedError, once

from .server import PATIENCE, running, until

ROOT = Path(__file__).parents[3]
RECIPES, PRODUCTION = ROOT / "docs" / "RECIPES.md", ROOT / "docs" / "PRODUCTION.md"
README = Path(__file__).parents[1] / "README.md"
TEMPLATES = ROOT / "packaging" / "kubernetes"
# What the programs call, and what that returns.
CALLS = dict.fromkeys(["make_backup", "save", "handle", "send_mail"]) | {
    "call_api": b"ok",
    "render": b"<html>",
    "ask_the_bank": b"1.1",
    "ask_the_station": b"sun",
    "fetch_token": b"secret",
    "pay": {"paid": 5},
    "make_report": b"pdf",
    "load_orders": b"o",
    "load_stock": b"s",
}


def blocks(page, number, begin=""):
    found = re.findall(rf"```python\n({begin}.*?)```", page.read_text(), re.DOTALL)
    assert len(found) == number
    return found


def read(**names):
    """The programs of the recipes, which call what stands under these names."""
    names = {name: Mock(return_value=value) for name, value in CALLS.items()} | names
    for block in blocks(RECIPES, 18):
        exec(block, names)
    return names


@pytest.fixture
def programs():
    return read()


class Brief(Lock):
    """A lock whose loss is seen soon."""

    kept: Any = None

    def __init__(self, redis, name, **options):
        super().__init__(redis, name, **options | {"timeout": 0.3})

    def keep_alive(self, on_lost=None):
        Brief.kept = super().keep_alive(on_lost)
        return Brief.kept

    @staticmethod
    def lose(client, name):
        kept = Brief.kept
        client.delete(name)
        until(kept.lost.is_set, "the loss")


def test_a_migration_at_deploy(client):
    pending, applied = [1, 2, 3], []

    def apply(step):
        applied.append(step)
        pending.remove(step)
        if page["Lock"] is Brief:
            Brief.lose(client, "migration")

    page = read(pending_steps=lambda: list(pending), apply=apply)
    page["Lock"] = Brief
    with pytest.raises(LockNotOwnedError):
        page["migrate"](client)
    assert applied == [1]
    page["Lock"] = Lock
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(page["migrate"], [client] * 4))
    assert applied == [1, 2, 3]


def test_a_leader_that_is_deposed_or_stops_hands_over(client, server):
    fences: list[set[int]] = [set(), set()]
    # Two processes have two events.
    first, second = (read(do_a_round=led.add) for led in fences)
    first["Lock"] = Brief
    with ThreadPoolExecutor(2) as pool:
        try:
            ends = [pool.submit(first["lead"], client)]
            until(lambda: fences[0], "a leader")
            Brief.lose(client, "leader")
            until(lambda: len(fences[0]) > 1, "its next time")
            ends += [pool.submit(second["lead"], client)]
            until(lambda: server.waiters("leader") or fences[1], "another one who waits")
            first["stopping"].set()
            until(lambda: fences[1], "another leader")
        finally:
            first["stopping"].set()
            second["stopping"].set()
    assert [end.result() for end in ends] == [None, None]
    assert not client.exists("leader")


def test_a_worker_pool(client, server):
    # While four work, all others wait.
    waiting = iter([4, 0])
    four = threading.Barrier(4, lambda: server.wait_for_waiters("converters", next(waiting)))
    convert = read(run_converter=lambda _: four.wait(PATIENCE))["convert"]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda video: convert(client, video), range(8)))
    assert list(waiting) == []


def test_one_worker_per_file(client):
    processed = Counter[int]()
    both = threading.Barrier(2)
    programs = read(process=lambda file: processed.update([file]), is_done=lambda file: file in processed)

    def worker(_):
        both.wait(PATIENCE)
        programs["work_through"](client, range(20))

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(worker, range(2)))
    assert processed == dict.fromkeys(range(20), 1)
    assert not client.keys("file:*")


def test_a_transfer(client):
    balance = {"anna": 100, "bert": 100}

    def move(source, target, amount, fence):
        assert fence
        seen = dict(balance)
        # Another thread has its turn.
        assert client.exists("account:anna", "account:bert") == 2
        balance[source], balance[target] = seen[source] - amount, seen[target] + amount

    transfer = read(move=move)["transfer"]
    with ThreadPoolExecutor(8) as pool:
        ways = [("anna", "bert", 3), ("bert", "anna", 1)] * 10
        list(pool.map(lambda way: transfer(client, *way), ways))
    assert balance == {"anna": 80, "bert": 120}


@pytest.mark.parametrize("next_owner_comes", ["never", "before the read", "after the read"])
def test_a_guarded_write(client, next_owner_comes):
    db = sqlite3.connect(":memory:")
    db.execute("CREATE TABLE stock (id, n, fence BIGINT NOT NULL DEFAULT 0)")
    db.execute("INSERT INTO stock (id, n) VALUES ('pen', 5)")

    def comes(when):
        if when == next_owner_comes:
            with db:
                db.execute("UPDATE stock SET n = 0, fence = 9e15")

    def count_after_sale(n):
        comes("after the read")
        return n - 1

    sell = read(count_after_sale=count_after_sale)["sell"]
    comes("before the read")
    if next_owner_comes == "never":
        sell(client, db, "pen")
    else:
        with pytest.raises(RuntimeError, match="a newer owner"):
            sell(client, db, "pen")
    assert db.execute("SELECT n FROM stock").fetchone() == (4 if next_owner_comes == "never" else 0,)


def test_a_rate_limit(client, server, programs):
    with ThreadPoolExecutor(1) as pool:
        for _ in range(10):
            programs["limited_call"](client, "bob")
        last = pool.submit(programs["limited_call"], client, "bob")
        server.wait_for_waiters("rate:bob", 1)
        assert programs["call_api"].call_count == 10
        assert last.result(PATIENCE) == b"ok"


@pytest.mark.parametrize(
    ("name", "key", "call"),
    [("rates", "rates", "bank"), ("api_token", "api:token", "token"), ("weather", "weather", "station")],
)
def test_what_is_made_anew_ahead(client, programs, name, key, call):
    (call,) = (each for each in CALLS if each.endswith(call))
    make, calls = programs[name], programs[call]
    assert make(client) == make(client) == CALLS[call]
    assert calls.call_count == 1
    client.pexpire(key, 20_000)
    # An old value is better than none.
    calls.side_effect = OSError("away")
    assert make(client) == client.get(key) == CALLS[call]
    calls.side_effect = None
    assert make(client) == CALLS[call]
    assert calls.call_count == 3
    assert client.pttl(key) > 100_000


def test_no_stale_value_after_a_change(client, programs):
    def old_price():
        # Somebody changes it while this one is made.
        programs["change_price"](client, "pen", 2)
        return b"1"

    assert once(client, "price:pen", old_price) == b"1"
    assert client.get("price:pen") is None
    assert once(client, "price:pen", lambda: b"2") == b"2"


def test_what_happens_once(client, programs):
    assert [programs["nightly_backup"](client) for _ in range(3)] == [True, False, False]
    charge = programs["payments"](client)
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda _: programs["page"](client, 7), range(8))) == [b"<html>"] * 8
    for _ in range(3):
        assert charge("k", 5) == {"paid": 5}
        assert programs["on_webhook"](client, {"id": 1}) == b"done"
        assert programs["nightly"](client, "2026-11-28") == b"pdf"
        assert programs["warn"](client, "bob") == b"sent"
        assert programs["report"](client) == b"os"
    for name in ("make_backup", "render", "pay", "handle", "make_report", "send_mail", "load_orders", "load_stock"):
        programs[name].assert_called_once()
    with pytest.raises(FingerprintError):
        charge("k", 6)
    with Lock(client, "{report:2026-11-29}:once", timeout=30):
        assert programs["nightly"](client, "2026-11-29") is None


def test_a_test_of_an_application(tmp_path, server, monkeypatch):
    monkeypatch.setenv("REDIS_SERVER", f"{os.environ['REDIS_LOCK_SERVERS']}/{server.version}/bin/server")
    names: dict[str, Any] = {"os": os, "socket": socket, "subprocess": subprocess, "redis": redis}
    names |= {"Retry": Retry, "ConstantBackoff": ConstantBackoff}
    (fixture,) = blocks(README, 1, "@pytest.fixture\n")
    exec(fixture.partition("\n")[2], names)
    for client in names["client"](tmp_path):
        with Lock(client, "stock", timeout=30) as lock:
            assert lock.check() == lock.fence
            assert not Lock(client, "stock", blocking=False).acquire()


def test_a_value_that_one_makes(client):
    ask = Mock(return_value={"item": "pen"})
    names: dict[str, Any] = {"client": client, "json": json, "render": str, "ask_the_shop": ask}
    (block,) = blocks(README, 1, "from redis_lock_client import once")
    exec(block, names)
    assert names["html"] == client.get("page:7") == b"7"
    assert names["price"]("pen") == names["price"]("pen") == {"item": "pen"}
    ask.assert_called_once()


@pytest.fixture
def first_program(server):
    (program,) = blocks(ROOT / "README.md", 1)
    for words, others in [("port=6379", f"port={server.port}"), ("time.sleep(1)", "work()")]:
        assert words in program
        program = program.replace(words, others)
    return lambda work: exec(program, {"work": work})


def test_the_first_program(server, first_program, capsys):
    held: list[object] = []
    first_program(lambda: held.append(server.admin.exists("report")))
    assert held == [1] * 8
    assert re.fullmatch(r"has the lock, fence \d{16}\ndone, the lock is released\n", capsys.readouterr().out)
    assert not server.admin.exists("report")
    with pytest.raises(OSError, match="no route"):
        first_program(Mock(side_effect=OSError("no route")))
    assert not server.admin.exists("report")


def test_the_first_program_stops_when_the_lock_is_lost(client, first_program, monkeypatch):
    monkeypatch.setattr("redis_lock_client.Lock", Brief)
    work = Mock(side_effect=lambda: Brief.lose(client, "report"))
    with pytest.raises(LockNotOwnedError):
        first_program(work)
    work.assert_called_once()


def redis_cli(server, words):
    program = f"{os.environ['REDIS_LOCK_SERVERS']}/redis-7.0.15/bin/redis-cli"
    return subprocess.run([program, "-p", str(server.port), *words], capture_output=True, text=True, check=False)


def test_the_commands_of_the_checks(server):
    server.admin.execute_command("ACL", "SETUSER", "worker", "on", "nopass", "~jobs:*", "-@all", "+lock.acquire")
    commands = re.findall(r"\| `redis-cli (.*?)(?: \\\| .*?)?`", PRODUCTION.read_text())
    assert len(commands) == 11
    for command in commands:
        done = redis_cli(server, ["-e", *shlex.split(command)])
        assert done.returncode == 0, done
        assert done.stdout.strip(), command


def test_a_process_that_is_told_to_end_releases(server):
    (program,) = blocks(PRODUCTION, 1)
    work = "import tests\ndef work(fence):\n    print('at work', flush=True)\n    signal.pause()\n"
    program = work + program.replace("redis.Redis()", f"redis.Redis(port={server.port})")
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "at work\n"
        assert server.admin.exists("jobs:42")
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 143
    assert not server.admin.exists("jobs:42")


def documents(name):
    """What is in a template, which has to be as Kubernetes wants it."""
    yaml, kubernetes = pytest.importorskip("yaml"), pytest.importorskip("kubernetes_validate")
    found = list(yaml.safe_load_all((TEMPLATES / name).read_text()))
    for document in found:
        kubernetes.validate(document, kubernetes.latest_version(), strict=True)
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
    assert {path.name for path in TEMPLATES.iterdir()} == {"statefulset.yaml", "init-container.yaml"}
    (pod,) = documents("init-container.yaml")
    (brings,), (container,), (volume,) = (pod["spec"][name] for name in ("initContainers", "containers", "volumes"))
    assert [is_ours(brings["image"]), is_ours(container["image"])] == [True, False]
    assert brings["command"] == ["cp", module(), f"{mounts(brings)[volume['name']]}/"]
    option, path, *words = container["args"]
    assert (option, path) == ("--loadmodule", f"{mounts(container)[volume['name']]}/libredis_lock.so")
    with running(shared_server.version, *words) as server:
        assert server.admin.config_get("lock.guard") == {"lock.guard": "failover"}
