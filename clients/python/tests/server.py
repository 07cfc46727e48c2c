"""Real servers with the module, for the tests and for the peer's suite."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import redis

LAUNCHER = Path(__file__).parents[2] / "testing" / "servers.py"

# A stall that only a bug could outlast.
PATIENCE = 20.0 * float(os.environ.get("TEST_PATIENCE", "1"))


def versions() -> list[str]:
    """The names of the servers that are there: all of `.servers`, or those that TEST_SERVERS names."""
    folder = Path(os.environ["REDIS_LOCK_SERVERS"])
    there = sorted(path.parent.parent.name for path in folder.glob("*/bin/server"))
    chosen = [name for name in there if name in os.environ.get("TEST_SERVERS", ",".join(there)).split(",")]
    assert chosen, f"no servers in {folder}: run `make servers` at the top of the repository"
    return chosen


class Server:
    """One server with the module, on a port of its own."""

    def __init__(self, version: str, port: int, pid: int) -> None:
        self.version, self.port, self.pid = version, port, pid
        self.url = f"redis://127.0.0.1:{port}"
        # To arrange and to look, never to lock.
        self.admin = redis.Redis(port=port, decode_responses=True)

    def info(self, key: Any) -> dict[str, Any]:
        """What LOCK.INFO says of a lock: nothing of one that is free."""
        return as_map(self.admin.execute_command("LOCK.INFO", key) or ())

    def mode(self, key: str) -> str | None:
        return self.info(key).get("mode")

    def tokens(self, key: str) -> list[str]:
        return [as_map(holder)["token"] for holder in self.info(key).get("holders", ())]

    def waiters(self, key: Any) -> list[dict[str, Any]]:
        return [as_map(waiter) for waiter in self.info(key).get("waiters", ())]

    def wait_for_waiters(self, key: Any, number: int) -> None:
        until(lambda: len(self.waiters(key)) == number, f"{number} waiters for {key}")

    def calls(self, command: str) -> int:
        """How often the command was called since CONFIG RESETSTAT."""
        stats = self.admin.info("commandstats").get(f"cmdstat_{command}")
        return stats["calls"] if stats else 0


def as_map(reply: Any) -> dict[str, Any]:
    return reply if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2], strict=True))


def until(condition, what: str):
    """Wait until the condition is true, and return what it returned."""
    end = time.monotonic() + PATIENCE
    while not (result := condition()):
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.005)
    return result


@contextlib.contextmanager
def launched(kind: str, version: str, *words: str) -> Iterator[list[Server]]:
    """Run what clients/testing/servers.py starts, until the context ends, whatever happens in it."""
    command = [sys.executable, str(LAUNCHER), kind, "--version", version, *words]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as launcher:
        assert launcher.stdin
        assert launcher.stdout
        try:
            started = launcher.stdout.readline().split()
            assert started, f"no servers of {version}"
            yield [Server(version, *map(int, one.split("/"))) for one in started]
        finally:
            launcher.stdin.close()


@contextlib.contextmanager
def running(version: str, *words: str, with_module: bool = True) -> Iterator[Server]:
    """Run one server until the context ends."""
    without = () if with_module else ("--without-module",)
    with launched("server", version, *without, *words) as (server,):
        yield server


@contextlib.contextmanager
def cluster_of_one(version: str, with_module: bool = True) -> Iterator[Server]:
    """Run a server that has all the slots."""
    with running(version, "--cluster-enabled", "yes", with_module=with_module) as node:
        node.admin.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        until(lambda: node.admin.cluster("info")["cluster_state"] == "ok", "a cluster")
        yield node
