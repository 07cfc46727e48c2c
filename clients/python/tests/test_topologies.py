"""Behind a Sentinel and in a Cluster: a waiter and a holder follow the primary."""

from contextlib import ExitStack, suppress
from itertools import islice

import pytest
import redis
import redis.asyncio
import redis.asyncio.sentinel
import redis.sentinel

from redis_lock_client import Lock

from .package import KINDS, Kept, Package
from .proxy import Proxy
from .server import until, versions
from .topologies import NAME, SentinelSet, cluster_of_four, sentinel_set

# They are about the client: the newest server is enough. The module's own tests have them on every version.
NEWEST = versions()[-1]


@pytest.fixture
def sentinels():
    with sentinel_set(NEWEST) as found:
        yield found


@pytest.fixture(scope="module")
def cluster():
    with cluster_of_four(NEWEST) as found:
        yield found


def connect(where, library=redis, **settings):
    if isinstance(where, SentinelSet):
        return library.sentinel.Sentinel(where.sentinels).master_for(NAME, **settings)
    return library.RedisCluster(host="127.0.0.1", port=where.nodes[1].port, **settings)


class Waiter:
    """Waits in the background behind a hold that is kept, under a token that is known."""

    def __init__(self, package, holding, waiting, names="stock"):
        self.package = package
        what = "Lock" if isinstance(names, str) else "MultiLock"
        self.held = package.made(what, holding, names, timeout=9)
        assert package.now(self.held.acquire())
        self._kept = Kept(package, self.held)
        self._lock = package.made(what, waiting, names, blocking_timeout=40)
        self._key = names if isinstance(names, str) else names[1]
        self._waiting = package.begin(self._lock.acquire, token="waiter")

    def is_at(self, server):
        with suppress(redis.RedisError):
            return any(waiter["token"] == "waiter" for waiter in server.waiters(self._key))
        return False

    def is_kept_at(self, server):
        """Wait for a renewal there. The hold is the same, and the waiter waits for it."""
        until(renewed_at(server, self._key), "a renewal")
        assert not self._kept.is_lost()
        assert self.package.now(self.held.check()) == self.held.fence
        assert not self._waiting.done()

    def gets_it(self):
        """Release it. It is handed on: nobody has to find out by asking again, 20 s later."""
        self._kept.stop()
        fence = self.held.fence
        self.package.now(self.held.release())
        assert self._waiting.result(10)
        assert self._lock.fence > fence
        self.package.now(self._lock.release())


def renewed_at(server, key):
    """A question whether a hold has been renewed since now."""
    last = server.admin.pttl(key)

    def is_renewed():
        nonlocal last
        before, last = last, server.admin.pttl(key)
        return bool(last > before)

    return is_renewed


def all_follow(waiters, server):
    """Wait until they ask there, by themselves and under the same token, and their holds are kept there."""
    until(lambda: all(waiter.is_at(server) for waiter in waiters), "the waiters")
    for waiter in waiters:
        waiter.is_kept_at(server)
        waiter.gets_it()


@pytest.mark.parametrize("kills", [False, True], ids=["of two alive", "of one killed"])
def test_sentinel_failover(sentinels, kills):
    with ExitStack() as stack:
        packages = [stack.enter_context(Package(kind)) for kind in KINDS]
        clients = [connect(sentinels, package.redis) for package in packages]
        waiters = [Waiter(*each) for each in zip(packages, clients, clients, KINDS, strict=True)]
        before = sentinels.primary()
        until(lambda: all(waiter.is_at(before) for waiter in waiters), "the waiters")
        before.admin.wait(1, 1000)
        all_follow(waiters, sentinels.fail_over(kills))


@pytest.mark.parametrize("moves", [False, True], ids=["a failover", "a slot that moves"])
def test_cluster_a_waiter_follows(cluster, way, moves):
    before, _ = cluster.replicated()
    key = next(cluster.keys_of(before))
    waiter = Waiter(way, connect(cluster, way.redis), connect(cluster, way.redis), key)
    until(lambda: waiter.is_at(before), "the waiter")
    before.admin.wait(1, 1000)
    all_follow([waiter], cluster.move_slot(key, cluster.nodes[2]) if moves else cluster.fail_over())


# Threads, whose connections each wait in vain once, come too near to the end of a short ttl on a busy machine.
@pytest.mark.parametrize("way", KINDS[1:], indirect=True)
def test_cluster_a_primary_that_hangs(cluster, way):
    """Nothing is refused, and no connection ends: the silence has to tell."""
    before, _ = cluster.replicated()
    holding, waiting = (connect(cluster, way.redis, socket_timeout=2) for _ in range(2))
    waiters = [Waiter(way, holding, waiting, key) for key in islice(cluster.keys_of(before), 3)]
    until(lambda: all(waiter.is_at(before) for waiter in waiters), "the waiters")
    before.admin.wait(1, 1000)
    with cluster.hanging_primary() as new:
        all_follow(waiters, new)


def test_cluster_several_keys_share_a_slot(cluster, way):
    names = ["{7}:a", "{7}:b"]
    waiter = Waiter(way, connect(cluster, way.redis), connect(cluster, way.redis), names)
    all_follow([waiter], cluster.owner("{7}:a"))
    assert not connect(cluster).exists(*names)


def test_cluster_without_socket_timeout_a_wait_outlives_a_connection_that_falls_silent(cluster, way, monkeypatch):
    for name in ("acquire.LONGEST_SLICE", "acquire.DEFAULT_TIMEOUT", "listener.DEFAULT_TIMEOUT"):
        monkeypatch.setattr(f"redis_lock_client.{name}", 0.3)
    node = cluster.nodes[2]
    with Proxy(node.port) as proxy:
        by_proxy = {("127.0.0.1", node.port): ("127.0.0.1", proxy.port)}
        settings = {"socket_timeout": None, "address_remap": lambda address: by_proxy.get(address, address)}
        holding, waiting = (connect(cluster, way.redis, **more) for more in ({}, settings))
        waiter = Waiter(way, holding, waiting, next(cluster.keys_of(node)))
        until(lambda: waiter.is_at(node), "the waiter")
        proxy.silence()
        waiter.gets_it()


def test_cluster_a_message_of_a_grant_is_not_taken_for_the_grant(cluster):
    owner, _ = cluster.replicated()
    key = next(cluster.keys_of(owner))
    with Package("notify") as way, way.closing(connect(cluster, way.redis)) as client:
        held, lock = (way.lock(client, name=key) for _ in range(2))
        way.now(held.acquire())
        waiting = way.begin(lock.acquire)
        owner.wait_for_waiters(key, 1)
        (waiter,) = owner.waiters(key)
        # As a replica's subscribers hear it of a grant that its primary has not made.
        asked = owner.calls("lock.acquire")
        owner.admin.execute_command("SPUBLISH", waiter["channel"], f"granted 7 {len(key)} {key} {waiter['token']}")
        until(lambda: owner.calls("lock.acquire") >= asked + 2, "two more requests")
        assert not waiting.done()
        owner.wait_for_waiters(key, 1)
        way.now(held.release())
        assert waiting.result(10)
        assert owner.tokens(key) == [waiter["token"]]
        way.now(lock.release())


def test_cluster_a_node_that_serves_no_slots_any_more_is_left(cluster, monkeypatch):
    lock = Lock(connect(cluster), "stock", timeout=9)
    monkeypatch.setattr(lock._driver, "_send_to", lambda *_, **how: [redis.exceptions.ClusterDownError("CLUSTERDOWN")])
    with lock:
        pass


def test_cluster_several_keys_of_other_slots_are_explained(cluster, package):
    told = r"in a cluster the keys of a multi-lock need one hash tag.*'a', 'b'"
    with pytest.raises(ValueError, match=told):
        package.made("MultiLock", connect(cluster, package.redis), ["a", "b"])
