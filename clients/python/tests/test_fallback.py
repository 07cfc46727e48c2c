"""Servers without the module: what is told, and what the locks do there with `fallback=True`."""

import logging
from collections.abc import Callable
from typing import Any

import pytest
import redis

from redis_lock_client import Lock, ModuleMissingError, RWLock, Semaphore, run_once

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


@pytest.mark.parametrize(
    "told",
    [
        b"-ERR Command is not available: 'LOCK.ACQUIRE'. See https://example.com",
        b"-ERR unsupported command",
        b"-ERR UNKNOWN COMMAND 'lock.acquire'",
    ],
)
def test_a_proxy_that_says_in_its_own_words_that_it_lacks_the_module(plain, package, told):
    with Proxy(plain.port) as proxy, package.client(proxy.port) as client:
        proxy.answer(rb"LOCK\.[A-Z]+", told)
        with pytest.raises(ModuleMissingError):
            package.now(package.lock(client).acquire())
        lock = package.lock(client, fallback=True)
        assert package.now(lock.acquire())
        assert (lock.fence, plain.admin.type("stock")) == (0, "string")
        package.now(lock.release())


def test_with_the_module_the_option_changes_nothing(server, caplog):
    with redis.Redis.from_url(server.url) as client, caplog.at_level(logging.WARNING, "redis_lock_client"):
        with Lock(client, "stock", timeout=30, fallback=True) as lock:
            assert lock.fence
        with RWLock(client, "stock", timeout=30, fallback=True).read():
            assert server.mode("stock") == "shared"
        assert not caplog.records
