"""Servers that lack the module, and users that lack a right."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.asyncio

from redis_lock_client import Lock, ModuleMissingError, MultiLock, RWLock, Semaphore, run_once

from .package import Package
from .proxy import Proxy
from .server import cluster_of_one, running, versions


@pytest.fixture(scope="module", params=versions())
def plain_server(request):
    with running(request.param, with_module=False) as server:
        yield server


@pytest.fixture
def plain(plain_server):
    plain_server.admin.flushall()
    plain_server.admin.config_resetstat()
    return plain_server


@pytest.fixture
def client(plain):
    with redis.Redis.from_url(plain.url) as client:
        yield client


def test_what_it_cannot_do_is_told(plain, client):
    uses: list[Callable[[Any], object]] = [
        lambda more: Semaphore(client, "a", 3, **more).available(),
        lambda more: RWLock(client, "a", **more).write().acquire(),
        lambda more: Lock(client, "a", linger=3, **more).acquire(),
        lambda more: run_once(client, "a", pytest.fail, at_most=9, at_least=1, **more),
    ]
    beyond = "is not available in the fallback"
    missing = (
        r"has not loaded the module redis-lock.*loadmodule /path/libredis_lock\.so.*restart.*fallback=True.*fences"
    )
    for use in uses:
        for more, told in (({}, missing), ({"fallback": True}, beyond)):
            with pytest.raises(ModuleMissingError, match=told):
                use(more)
    with Lock(client, "a", timeout=30, fallback=True) as lock:
        for question in (lambda: lock.exec("SET", "b", 1), lock.check):
            with pytest.raises(ModuleMissingError, match=beyond):
                question()
    assert plain.admin.dbsize() == 0


@pytest.mark.parametrize("blocking", [True, False])
def test_a_lost_reply_does_not_lose_the_lock(plain, blocking):
    with Proxy(plain.port) as proxy, redis.Redis(port=proxy.port) as client:
        assert not Lock(client, "other", fallback=True).locked()
        proxy.lose_reply_to(b"SET")
        with Lock(client, "stock", timeout=30, blocking=blocking, fallback=True) as lock:
            assert proxy.lost == 1
            assert lock.owned()
    assert not plain.admin.exists("stock")


def test_an_interrupted_wait_leaves_nothing_behind(plain, package):
    with package.client(plain.port) as client:
        held, waiter = (package.lock(client, fallback=True) for _ in range(2))
        package.now(held.acquire())
        package.interrupt(waiter.acquire, lambda: plain.calls("set") >= 3)
        assert package.now(held.owned())
        package.now(held.release())
    assert not plain.admin.exists("stock")


def test_what_is_lost_is_said_once_for_each_client(plain, caplog):
    with caplog.at_level(logging.WARNING, "redis_lock_client"):
        for number in (1, 2):
            with redis.Redis.from_url(plain.url) as client:
                for name in ("a", "b", "c"):
                    with Lock(client, name, timeout=30, fallback=True):
                        assert len(caplog.records) == number
    for lost in ("fair queue", "fences", "readers and writers", "semaphores", "guarded", "eviction", "failover"):
        assert lost in caplog.text


def test_in_a_cluster_who_does_without_the_option_spoils_nothing_for_others(plain, way):
    now = way.now
    with (
        cluster_of_one(plain.version, with_module=False) as node,
        way.closing(way.redis.RedisCluster.from_url(node.url)) as cluster,
    ):
        several = way.made("MultiLock", cluster, name=["{7}:stock", "{7}:prices"])
        several.local.token = b"mine"
        with pytest.raises(ModuleMissingError):
            now(several.release())
        for _ in range(5):
            # Notified tasks send the commands of all of them together.
            without = way.begin(way.lock(cluster).acquire)
            lock = way.lock(cluster, fallback=True)
            assert now(lock.acquire())
            with pytest.raises(ModuleMissingError):
                without.result(20)
            assert lock.fence == 0
            now(lock.release())


def test_a_proxy_that_says_in_its_own_words_that_it_lacks_the_module(plain, package):
    with Proxy(plain.port) as proxy, package.client(proxy.port) as client:
        proxy.answer(rb"LOCK\.[A-Z]+", b"-ERR unsupported command")
        with pytest.raises(ModuleMissingError):
            package.now(package.lock(client).acquire())
        lock = package.lock(client, fallback=True)
        assert package.now(lock.acquire())
        assert (lock.fence, plain.admin.type("stock")) == (0, "string")
        package.now(lock.release())


def test_with_the_module_the_option_changes_nothing(server, caplog):
    with redis.Redis.from_url(server.url) as client, RWLock(client, "stock", timeout=30, fallback=True).read() as lock:
        assert lock.fence
        assert server.mode("stock") == "shared"
    assert not caplog.records


# The role `worker` of the documents: docs/OPERATIONS.md, "Rights".
WORKER = ("+lock.acquire", "+rwlock.rlock", "+rwlock.wlock", "+lock.release", "+lock.renew")
PAGE = Path(__file__).parents[3] / "docs" / "OPERATIONS.md"
LOGIN: dict[str, Any] = {"username": "worker", "password": "secret"}


def allow(server, *rights):
    """Give the user these rights, and no other."""
    arguments = ["reset", "on", ">secret", "~app:*", "resetchannels", "-@all", *rights]
    server.admin.execute_command("ACL", "SETUSER", "worker", *arguments)


@pytest.fixture
def worker(server):
    allow(server, *WORKER)
    return redis.Redis(port=server.port, **LOGIN)


@pytest.mark.skipif(not PAGE.exists(), reason="this is not the repository")
def test_the_documents_name_these_rights():
    (line,) = (line for line in PAGE.read_text().splitlines() if line.startswith("ACL SETUSER worker "))
    assert set(WORKER) <= set(line.split())


def test_a_worker_can_do_all_that_takes_and_ends_a_hold(server, worker):
    with Lock(worker, "app:stock", timeout=30, linger=20) as lock:
        assert lock.extend(20, replace_ttl=True)
        assert lock.reacquire()
        with lock.keep_alive():
            assert not Lock(worker, "app:stock", blocking_timeout=0.1).acquire()
        assert not Lock(worker, "app:stock", blocking_timeout=0.1).acquire(token="mine")
    pair = RWLock(worker, "app:page", timeout=30)
    with pair.read() as reader, pair.read(thread_local=False) as other:
        # Who gives up an upgrade keeps the share.
        assert not pair.write().acquire(blocking_timeout=0.1, token=reader.local.token)
        assert len(server.tokens("app:page")) == 2
        other.release()
        other.acquire(token=reader.local.token)
        assert pair.write().acquire(token=reader.local.token)
        reader.raise_on_release_error = False
    with Semaphore(worker, "app:permits", 3, timeout=30):
        assert server.mode("app:permits") == "counted"
    assert run_once(worker, "app:report", lambda: 7, at_most=30, at_least=1) == (True, 7)
    # Of an old client, too.
    server.admin.set("app:stock", "old", px=100)
    with Lock(worker, "app:stock", timeout=30):
        pass


def test_each_question_needs_its_right(server, worker):
    with Lock(worker, "app:stock", timeout=30) as lock:
        for question in (lock.locked, lock.owned, lambda: lock.extend(1)):
            with pytest.raises(redis.exceptions.NoPermissionError):
                question()
        allow(server, *WORKER, "+lock.check", "+exists")
        assert lock.owned()
        assert lock.locked()
        # By its own lease, as it may not ask for the ttl.
        assert lock.extend(1)


def test_a_worker_that_is_notified_of_grants(server, worker):
    # Not `ping`: that the server refuses it is an answer, too.
    allow(server, *WORKER, "+subscribe", "&redis-lock:*")
    held = Lock(worker, "app:stock", timeout=30)
    held.acquire()
    with Package("notify") as tasks, tasks.client(server.port, **LOGIN, socket_timeout=0.4) as client:
        waiting = tasks.begin(tasks.lock(client, name="app:stock").acquire)
        server.wait_for_waiters("app:stock", 1)
        # So long that the connection that hears has been asked several times.
        assert not tasks.now(tasks.lock(client, name="app:stock", blocking_timeout=1).acquire())
        held.release()
        assert waiting.result(20)
    allow(server, *WORKER, "+subscribe")
    no_right = pytest.raises(redis.exceptions.NoPermissionError)
    with Package("notify") as tasks, tasks.client(server.port, **LOGIN) as client, no_right:
        tasks.now(tasks.lock(client, name="app:stock").acquire())


def test_a_worker_in_a_cluster(server):
    """The client itself asks for the slots and the commands."""
    with cluster_of_one(server.version) as node:
        allow(node, *WORKER, "+cluster|slots", "+command", "+lock.macquire")
        client = redis.RedisCluster(host="127.0.0.1", port=node.port, **LOGIN)
        with Lock(client, "app:stock", timeout=30) as lock:
            assert lock.reacquire()
        with MultiLock(client, ["app:{7}:a", "app:{7}:b"], timeout=30) as both:
            assert both.reacquire()
