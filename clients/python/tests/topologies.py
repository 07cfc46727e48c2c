"""Real servers behind a Sentinel, and in a Cluster."""

import contextlib
import os
import signal
from collections.abc import Iterator

import redis
from redis.crc import key_slot

from .server import Server, launched, until

NAME = "locks"


def replication(server: Server) -> dict[str, object]:
    found: dict[str, object] = server.admin.info("replication")
    return found


def is_primary(server: Server) -> bool:
    return replication(server)["role"] == "master"


def is_in_step(server: Server) -> bool:
    """Whether it is a replica that has what its primary has."""
    return replication(server).get("master_link_status") == "up"


class SentinelSet:
    """A primary, a replica, and the Sentinel that watches them."""

    def __init__(self, servers: list[Server], port: int) -> None:
        self._servers = servers
        self.sentinels = [("127.0.0.1", port)]
        self._admin = redis.Redis(port=port, decode_responses=True)

    def primary(self) -> Server:
        """The one that the Sentinel names."""
        _, port = self._admin.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME)
        return next(server for server in self._servers if server.port == int(port))

    def fail_over(self, kills: bool) -> Server:
        """End the primary, or let its replica take over. Return the one that has."""
        before = self.primary()
        (new,) = (server for server in self._servers if server is not before)
        if kills:
            os.kill(before.pid, signal.SIGKILL)
        else:
            until(self._begins_failover, "a failover that begins")
        until(lambda: self.primary() is new and is_primary(new), "a new primary")
        if not kills:
            # The Sentinel does it too, eight seconds later.
            before.admin.replicaof("127.0.0.1", str(new.port))
        return new

    def _begins_failover(self) -> bool:
        # Not before it has heard of the replica a second time.
        with contextlib.suppress(redis.ResponseError):
            self._admin.execute_command("SENTINEL", "FAILOVER", NAME)
            return True
        return False


@contextlib.contextmanager
def sentinel_set(version: str) -> Iterator[SentinelSet]:
    with launched("sentinel", version) as (*servers, sentinel):
        yield SentinelSet(servers, sentinel.port)


class Cluster:
    """Three primaries that share the slots, and a replica of the first."""

    def __init__(self, nodes: list[Server]) -> None:
        self.nodes = nodes

    def owner(self, key: str | bytes) -> Server:
        """The node that has a key's slot, by the word of the others."""
        slots = self.nodes[1].admin.execute_command("CLUSTER", "SLOTS", NEVER_DECODE=True)
        slot = key_slot(key.encode() if isinstance(key, str) else key)
        return self._by_port(next(primary[1] for first, last, primary, *_ in slots if first <= slot <= last))

    def keys_of(self, node: Server) -> Iterator[str]:
        """Keys whose slots a node has."""
        return (key for key in (f"stock{number}" for number in range(1000)) if self.owner(key) is node)

    def replicated(self) -> tuple[Server, Server]:
        """The primary that has a replica now, and its replica."""
        replica = next(node for node in self.nodes if not is_primary(node))
        return self._by_port(replication(replica)["master_port"]), replica

    def fail_over(self) -> Server:
        """Let the replica take over from its primary, which does not agree to it. Return it when it has."""
        before, new = self.replicated()
        until(lambda: is_in_step(new), "a replica in step")
        new.admin.execute_command("CLUSTER", "FAILOVER")
        until(lambda: is_primary(new), "a new primary")
        until(lambda: is_in_step(before), "a replica again")
        return new

    @contextlib.contextmanager
    def hanging_primary(self) -> Iterator[Server]:
        """Let the primary that has a replica hang, and yield the one that has taken over."""
        before, new = self.replicated()
        os.kill(before.pid, signal.SIGSTOP)
        try:
            until(lambda: is_primary(new), "a new primary")
            yield new
        finally:
            os.kill(before.pid, signal.SIGCONT)
            until(lambda: is_in_step(before), "a replica again")

    def move_slot(self, key: str, to: Server) -> Server:
        """Move the slot of a key to a node, with all that is in it, as `--cluster reshard` does."""
        slot, source = key_slot(key.encode()), self.owner(key)
        there, here = (node.admin.execute_command("CLUSTER", "MYID") for node in (to, source))
        to.admin.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", here)
        source.admin.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", there)
        while keys := source.admin.execute_command("CLUSTER", "GETKEYSINSLOT", slot, 10):
            source.admin.execute_command("MIGRATE", "127.0.0.1", to.port, "", 0, 5000, "KEYS", *keys)
        for node in (to, source, *self.nodes):
            with contextlib.suppress(redis.ResponseError):
                node.admin.execute_command("CLUSTER", "SETSLOT", slot, "NODE", there)
        return to

    def _by_port(self, port: object) -> Server:
        return next(node for node in self.nodes if node.port == port)


@contextlib.contextmanager
def cluster_of_four(version: str) -> Iterator[Cluster]:
    with launched("cluster", version) as nodes:
        yield Cluster(nodes)
