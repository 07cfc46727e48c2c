"""Real servers behind a Sentinel, and in a Cluster."""

import contextlib
import os
import signal
from collections.abc import Iterator

import redis

from redis_lock_client.driver import slot_of

from .server import Server, launched, until

NAME = "locks"


class SentinelSet:
    """A primary, a replica, and the Sentinel that watches them."""

    def __init__(self, servers: list[Server], port: int) -> None:
        self.servers = servers
        self.sentinels = [("127.0.0.1", port)]
        self._admin = redis.Redis(port=port, decode_responses=True)

    def primary(self) -> Server:
        """The one that the Sentinel names."""
        _, port = self._admin.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME)
        return next(server for server in self.servers if server.port == int(port))

    def fail_over(self) -> Server:
        """Let the replica take over. Return it when it has."""
        before = self.primary()
        until(self._begins_failover, "a failover that begins")
        new = self.new_primary(before)
        # The Sentinel does it too, eight seconds later.
        before.admin.replicaof("127.0.0.1", str(new.port))
        return new

    def _begins_failover(self) -> bool:
        # Not before it has heard of the replica a second time.
        with contextlib.suppress(redis.ResponseError):
            self._admin.execute_command("SENTINEL", "FAILOVER", NAME)
            return True
        return False

    def new_primary(self, before: Server) -> Server:
        """Wait until another one has taken over, and return it."""

        def takes_writes() -> Server | None:
            now = self.primary()
            return now if now is not before and now.admin.info("replication")["role"] == "master" else None

        server: Server = until(takes_writes, "a new primary")
        return server


@contextlib.contextmanager
def sentinel_set(version: str) -> Iterator[SentinelSet]:
    with launched("sentinel", version) as (*servers, sentinel):
        yield SentinelSet(servers, sentinel.port)


class Cluster:
    """Three primaries that share the slots, and a replica of the first."""

    def __init__(self, nodes: list[Server]) -> None:
        self.nodes = nodes

    def owner(self, key: str) -> Server:
        """The node that has a key's slot, by the word of the others."""
        return self._by_port(self._owner_port(slot_of(key.encode())))

    def replica(self) -> Server:
        """The one that is a replica now."""
        return next(node for node in self.nodes if node.admin.info("replication")["role"] == "slave")

    def key_of(self, node: Server) -> str:
        """A key whose slot a node has."""
        return next(self.keys_of(node))

    def keys_of(self, node: Server) -> Iterator[str]:
        """Keys whose slots a node has."""
        return (key for key in (f"stock{number}" for number in range(1000)) if self.owner(key) is node)

    def replicated_key(self) -> str:
        """A key whose slot has a replica."""
        port = self.replica().admin.info("replication")["master_port"]
        return self.key_of(self._by_port(port))

    def fail_over(self) -> Server:
        """Let the replica take over from its primary, which does not agree to it. Return it when it has."""
        new = self.replica()
        before = self._by_port(new.admin.info("replication")["master_port"])
        until(lambda: new.admin.info("replication")["master_link_status"] == "up", "a replica in step")
        new.admin.execute_command("CLUSTER", "FAILOVER")
        until(lambda: new.admin.info("replication")["role"] == "master", "a new primary")
        until(lambda: before.admin.info("replication")["role"] == "slave", "the old primary's end")
        until(lambda: before.admin.info("replication")["master_link_status"] == "up", "a replica again")
        return new

    @contextlib.contextmanager
    def hanging_primary(self) -> Iterator[Server]:
        """Let the primary that has a replica hang, and yield the one that has taken over."""
        new = self.replica()
        before = self._by_port(new.admin.info("replication")["master_port"])
        os.kill(before.pid, signal.SIGSTOP)
        try:
            until(lambda: new.admin.info("replication")["role"] == "master", "a new primary")
            yield new
        finally:
            os.kill(before.pid, signal.SIGCONT)
            until(lambda: before.admin.info("replication").get("master_link_status") == "up", "a replica again")

    def move_slot(self, key: str, to: Server) -> None:
        """Move the slot of a key, with all that is in it, as `--cluster reshard` does."""
        slot, source = slot_of(key.encode()), self.owner(key)
        there, here = (node.admin.execute_command("CLUSTER", "MYID") for node in (to, source))
        to.admin.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", here)
        source.admin.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", there)
        while keys := source.admin.execute_command("CLUSTER", "GETKEYSINSLOT", slot, 10):
            source.admin.execute_command("MIGRATE", "127.0.0.1", to.port, "", 0, 5000, "KEYS", *keys)
        for node in (to, source, *self.nodes):
            with contextlib.suppress(redis.ResponseError):
                node.admin.execute_command("CLUSTER", "SETSLOT", slot, "NODE", there)

    def _by_port(self, port: int) -> Server:
        return next(node for node in self.nodes if node.port == port)

    def _owner_port(self, slot: int) -> int:
        for first, last, primary, *_ in self.nodes[1].admin.execute_command("CLUSTER", "SLOTS", NEVER_DECODE=True):
            if first <= slot <= last:
                return int(primary[1])
        raise AssertionError(f"nobody has slot {slot}")


@contextlib.contextmanager
def cluster_of_four(version: str) -> Iterator[Cluster]:
    with launched("cluster", version) as nodes:
        yield Cluster(nodes)
