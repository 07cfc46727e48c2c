"""Real servers with the module, for the tests and for the peer's suite."""

import contextlib
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import redis

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

    def __init__(self, version: str, process: "subprocess.Popen[bytes]", port: int) -> None:
        self.version = version
        self.process = process
        self.port = port
        self.url = f"redis://127.0.0.1:{port}"
        # To arrange and to look, never to lock.
        self.admin = redis.Redis(port=port, decode_responses=True)

    def info(self, key: str) -> dict[str, Any]:
        """What LOCK.INFO says of a lock: nothing of one that is free."""
        return as_map(self.admin.execute_command("LOCK.INFO", key) or ())

    def mode(self, key: str) -> str | None:
        return self.info(key).get("mode")

    def tokens(self, key: str) -> list[str]:
        return [as_map(holder)["token"] for holder in self.info(key).get("holders", ())]

    def waiters(self, key: str) -> int:
        return len(self.info(key).get("waiters", ()))

    def wait_for_waiters(self, key: str, number: int) -> None:
        until(lambda: self.waiters(key) == number, f"{number} waiters for {key}")

    def connections(self) -> int:
        """How many clients have connected since CONFIG RESETSTAT."""
        number: int = self.admin.info("stats")["total_connections_received"]
        return number

    def calls(self, command: str) -> int:
        """How often the command was called since CONFIG RESETSTAT."""
        stats = self.admin.info("commandstats").get(f"cmdstat_{command}")
        return stats["calls"] if stats else 0


def as_map(reply: Any) -> dict[str, Any]:
    return reply if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2], strict=True))


def until(condition, what: str):  # type: ignore[no-untyped-def]
    """Wait until the condition is true, and return what it returned."""
    end = time.monotonic() + PATIENCE
    while not (result := condition()):
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.005)
    return result


def program(version: str) -> Path:
    return Path(os.environ["REDIS_LOCK_SERVERS"], version, "bin", "server")


@contextlib.contextmanager
def running(version: str, *settings: str, with_module: bool = True) -> Iterator[Server]:
    """Run a server until the context ends, whatever happens in it."""
    module = Path(os.environ["REDIS_LOCK_MODULE"])
    assert module.exists(), f"no {module}: run `make build` at the top of the repository"
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        arguments = [
            "--port",
            str(port),
            "--bind",
            "127.0.0.1",
            "--dir",
            folder,
            "--save",
            "",
            *(("--loadmodule", str(module)) if with_module else ()),
        ]
        process = subprocess.Popen([program(version), *arguments, *settings], stdout=subprocess.DEVNULL)
        try:
            server = Server(version, process, port)
            until(lambda: answers(server), f"the answer of {version}")
            yield server
        finally:
            process.kill()
            process.wait()


def answers(server: Server) -> bool:
    assert server.process.poll() is None, "the server has ended"
    # Asked by a plain socket: redis-py would try again for seconds.
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", server.port), timeout=1) as connection:
        connection.sendall(b"PING\r\n")
        return connection.recv(7) == b"+PONG\r\n"
    return False


def free_port() -> int:
    while True:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            port: int = listener.getsockname()[1]
        # A node of a cluster takes the one 10,000 above as well.
        if port < 55_000:
            return port
