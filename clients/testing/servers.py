#!/usr/bin/env python3
"""Private servers for the tests of all the adapters. A test starts this as a process, and closes its stdin to end it.

    servers.py server   [--version V] [--without-module] [WORD…]   one server
    servers.py sentinel [--version V] [--sentinels N]              a primary, a replica, and those that watch them
    servers.py cluster  [--version V]                              three primaries, and a replica of the first

When all of it works it prints one line: `port/pid` for each process, in the order above. The WORDs stand behind the
module on the command line: words of the module first, then settings of the server.

A test may stop or kill a process by its pid. The line `run N` on stdin starts number N (from 0) again, with the same
port and folder, and is answered by its `port/pid`.

REDIS_LOCK_SERVERS and REDIS_LOCK_MODULE say where the servers and the module are, and REDIS_LOCK_SERVER which server
is taken without --version. Nothing but Python's own library is needed. The servers listen on the loopback address only.
"""

import argparse
import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SERVERS = Path(os.environ.get("REDIS_LOCK_SERVERS", ROOT / ".servers"))
MODULE = Path(os.environ.get("REDIS_LOCK_MODULE", ROOT / "target/release/libredis_lock.so"))
SLOTS = 16384

# A stall that only a bug or a dead machine outlasts.
PATIENCE = 60

# The name under which the Sentinels know the primary.
NAME = "locks"


class Process:
    """A server or a Sentinel, on a port of its own."""

    def __init__(self, folder: Path, version: str, words: list[str], conf: str = "") -> None:
        """Start it."""
        self.program = SERVERS / version / "bin" / "server"
        self.words = words
        self.conf = conf
        self.folder = Path(tempfile.mkdtemp(dir=folder))
        self.port = free_port()
        self.process: subprocess.Popen[bytes]
        self.run()

    def run(self) -> None:
        """Start it, again if it has run before."""
        own = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder)]
        file = self.folder / "sentinel.conf"
        if self.conf and not file.exists():
            file.write_text(self.conf)
        first = [str(file), "--sentinel"] if self.conf else ["--save", "", "--appendonly", "no"]
        command = [str(self.program), *first, *own, *self.words]
        with self.log().open("wb") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def log(self) -> Path:
        """Return where it says what it does."""
        return self.folder / "log"

    def ask(self, *words: object) -> str:
        """Return the reply as it came, but for its type and length."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
            parts = [str(word).encode() for word in words]
            request = [b"*%d\r\n" % len(parts), *(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)]
            connection.sendall(b"".join([*request, b"*1\r\n$4\r\nPING\r\n"]))
            reply = b""
            while not reply.endswith(b"+PONG\r\n") and (more := connection.recv(65536)):
                reply += more
        return reply.removesuffix(b"+PONG\r\n").decode(errors="replace")

    def answers(self) -> bool:
        """Return whether it answers, and not another one that has taken the port first."""
        if self.process.poll() is not None:
            said = self.log().read_text(errors="replace")
            if "already in use" not in said:
                sys.exit(f"{said}\nthe server ended: {self.process.args!r}")
            self.port = free_port()
            self.run()
        with contextlib.suppress(OSError):
            own = f"process_id:{self.process.pid}\r\n"
            return own in self.ask("INFO", "server") and "LOADING" not in self.ask("EXISTS", "a")
        return False

    def end(self) -> None:
        """Kill it."""
        self.process.kill()
        self.process.wait()

    def __str__(self) -> str:
        """Return what the test is told."""
        return f"{self.port}/{self.process.pid}"


def until(condition, what: str) -> None:  # type: ignore[no-untyped-def]
    """Wait until the condition is true."""
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            sys.exit(f"it never happened: {what}")
        time.sleep(0.005)


def free_port() -> int:
    """Return a port that nobody has now."""
    while True:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            port: int = listener.getsockname()[1]
        # A node of a cluster takes the one 10,000 above as well.
        if port < 55_000:
            return port


class Group:
    """All that one call has started."""

    def __init__(self, folder: Path, version: str, words: list[str]) -> None:
        """Nothing has been started yet."""
        self.folder = folder
        self.version = version
        self.words = words
        self.all: list[Process] = []

    def start(self, number: int, *settings: str, conf: str = "") -> list[Process]:
        """Start processes, and return them when they answer."""
        for _ in range(number):
            self.all.append(Process(self.folder, self.version, [] if conf else [*self.words, *settings], conf))
        started = self.all[-number:]
        for process in started:
            until(process.answers, "a server that answers")
        return started

    def sentinel(self, sentinels: int) -> None:
        """Start a primary and its replica, and Sentinels that know both and one another."""
        (primary,) = self.start(1, "--repl-diskless-sync-delay", "0")
        self.start(1, "--repl-diskless-sync-delay", "0", "--replicaof", "127.0.0.1", str(primary.port))
        until(lambda: "state=online" in primary.ask("INFO", "replication"), "a replica in step")
        conf = (
            f"sentinel monitor {NAME} 127.0.0.1 {primary.port} {sentinels // 2 + 1}\n"
            f"sentinel down-after-milliseconds {NAME} 1000\n"
            f"sentinel failover-timeout {NAME} 5000\n"
        )
        watching = self.start(sentinels, conf=conf)
        for watcher in watching:
            # From 7.0 on these can be more frequent, which saves seconds.
            for period in ("info-period", "publish-period", "ask-period"):
                watcher.ask("SENTINEL", "DEBUG", period, 300)
        others = f"num-other-sentinels\r\n${len(str(sentinels - 1))}\r\n{sentinels - 1}\r\n"

        def knows(watcher: Process) -> bool:
            replicas = watcher.ask("SENTINEL", "REPLICAS", NAME)
            linked = "master-link-status\r\n$2\r\nok\r\n" in replicas
            return linked and others in watcher.ask("SENTINEL", "MASTER", NAME)

        until(lambda: all(map(knows, watching)), "Sentinels that know all")

    def cluster(self) -> None:
        """Start three primaries with a third of the slots each, and a replica of the first one."""
        nodes = self.start(
            4,
            *("--cluster-enabled", "yes", "--cluster-node-timeout", "1500"),
            *("--cluster-replica-validity-factor", "0"),
        )
        for number, node in enumerate(nodes):
            if number < 3:
                node.ask("CLUSTER", "ADDSLOTS", *range(number * SLOTS // 3, (number + 1) * SLOTS // 3))
            # Of its own, so that they need not agree on that first.
            node.ask("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
            if number > 0:
                nodes[0].ask("CLUSTER", "MEET", "127.0.0.1", node.port)
        first = re.split(r"\r\n", nodes[0].ask("CLUSTER", "MYID"))[1]
        until(lambda: nodes[3].ask("CLUSTER", "REPLICATE", first).startswith("+OK"), "a replica")

        def is_whole(node: Process) -> bool:
            info, known = node.ask("CLUSTER", "INFO"), node.ask("CLUSTER", "NODES")
            up = "cluster_state:ok" in info and "cluster_known_nodes:4\r" in info
            # One that the others do not know of is not elected.
            return up and f"slave {first}" in known and known.count(" connected") == 4

        until(lambda: all(map(is_whole, nodes)), "a cluster that is up")
        until(lambda: "master_link_status:up" in nodes[3].ask("INFO", "replication"), "a replica in step")


def serve(group: Group) -> None:
    """Do what the test says, until it has closed the pipe."""
    print(*group.all, flush=True)
    for line in sys.stdin:
        _, number = line.split()
        process = group.all[int(number)]
        process.end()
        process.run()
        until(process.answers, "a server that answers again")
        print(process, flush=True)


def main() -> None:
    """Start what the command line says."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kind", choices=["server", "sentinel", "cluster"])
    parser.add_argument("--version", default=os.environ.get("REDIS_LOCK_SERVER", "redis-7.0.15"))
    parser.add_argument("--without-module", action="store_true")
    parser.add_argument("--sentinels", type=int, default=1)
    known, words = parser.parse_known_args()
    if not known.without_module:
        if not MODULE.exists():
            sys.exit(f"no {MODULE}: run `make build` at the top of the project")
        words = ["--loadmodule", str(MODULE), *words]
    # Also when it is ended by a signal.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    folder = Path(tempfile.mkdtemp(prefix="redis-lock-test-"))
    group = Group(folder, known.version, words)
    try:
        if known.kind == "server":
            group.start(1)
        elif known.kind == "sentinel":
            group.sentinel(known.sentinels)
        else:
            group.cluster()
        serve(group)
    finally:
        for process in group.all:
            process.end()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
