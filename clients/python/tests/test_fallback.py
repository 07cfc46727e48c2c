"""Servers without the module: what is told, and what the locks do there with `fallback=True`."""

import asyncio
import logging
from collections.abc import Callable, Iterator

import pytest
import redis
import redis.asyncio

from redis_lock_client import (
    Lock,
    ModuleMissingError,
    NotSupportedError,
    RWLock,
    Semaphore,
    run_once,
)
from redis_lock_client import asyncio as ours
from redis_lock_client.driver import SLOTS

from .proxy import Proxy
from .server import Server, running, until, versions
from .worker import Package


@pytest.fixture(scope="module", params=versions())
def plain_server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with running(request.param, with_module=False) as server:
        yield server


@pytest.fixture
def plain(plain_server: Server) -> Server:
    plain_server.admin.flushall()
    plain_server.admin.config_resetstat()
    return plain_server


@pytest.fixture
def client(plain: Server) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(plain.url) as client:
        yield client


def test_without_the_option_the_error_says_what_to_do(client: redis.Redis) -> None:
    told = r"has not loaded the module redis-lock.*loadmodule /path/libredis_lock\.so.*restart.*fallback=True.*fences"
    uses: list[Callable[[], object]] = [
        lambda: Lock(client, "stock").acquire(token="mine"),
        Semaphore(client, "stock", 3).available,
        lambda: run_once(client, "stock", pytest.fail, at_most=9),
    ]
    for use in uses:
        with pytest.raises(ModuleMissingError, match=told) as error:
            use()
        assert isinstance(error.value, NotSupportedError)
        assert isinstance(error.value, redis.ResponseError)


@pytest.mark.parametrize("blocking", [True, False])
def test_a_lost_reply_does_not_lose_the_lock(plain: Server, blocking: bool) -> None:
    with Proxy(plain.port) as proxy, redis.Redis(port=proxy.port) as client:
        assert not Lock(client, "other", fallback=True).locked()
        proxy.lose_reply_to(b"SET")
        with Lock(client, "stock", timeout=30, blocking=blocking, fallback=True) as lock:
            assert proxy.lost == 1
            assert lock.owned()
    assert not plain.admin.exists("stock")


async def test_a_cancelled_wait_leaves_nothing_behind(plain: Server) -> None:
    async with redis.asyncio.Redis.from_url(plain.url) as client:
        held = ours.Lock(client, "stock", timeout=30, fallback=True)
        await held.acquire()
        task = asyncio.create_task(ours.Lock(client, "stock", timeout=30, fallback=True).acquire())
        await asyncio.to_thread(until, lambda: plain.calls("set") >= 3, "a waiter that polls")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await held.owned()
        await held.release()
    assert not plain.admin.exists("stock")


def test_what_is_lost_is_said_once_for_each_client(plain: Server, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "redis_lock_client"), redis.Redis.from_url(plain.url) as client:
        for name in ("a", "b", "c"):
            with Lock(client, name, timeout=30, fallback=True):
                pass
        (record,) = caplog.records
        for lost in ("fair queue", "fences", "readers and writers", "semaphores", "guarded", "eviction", "failover"):
            assert lost in record.message
        with redis.Redis.from_url(plain.url) as another, Lock(another, "a", timeout=30, fallback=True):
            assert len(caplog.records) == 2


def test_what_it_cannot_do_is_told(plain: Server, client: redis.Redis) -> None:
    not_there = "is not available in the fallback"
    beyond: list[Callable[[], object]] = [
        lambda: RWLock(client, "a", fallback=True).write().acquire(),
        lambda: Semaphore(client, "a", 3, fallback=True).available(),
        lambda: Lock(client, "a", linger=3, fallback=True).acquire(),
    ]
    for use in beyond:
        with pytest.raises(ModuleMissingError, match=not_there):
            use()
    assert run_once(client, "a", lambda: 7, at_most=30, fallback=True) == (True, 7)
    with Lock(client, "a", timeout=30, fallback=True) as lock:
        for use in (lambda: lock.exec("SET", "b", 1), lock.check):
            with pytest.raises(ModuleMissingError, match=not_there):
                use()
    assert plain.admin.dbsize() == 0


@pytest.fixture(scope="module")
def plain_cluster(plain_server: Server) -> Iterator[Server]:
    with running(plain_server.version, "--cluster-enabled", "yes", with_module=False) as node:
        node.admin.execute_command("CLUSTER", "ADDSLOTS", *range(SLOTS))
        until(lambda: node.admin.cluster("info")["cluster_state"] == "ok", "a cluster")
        yield node


def test_in_a_cluster_too(plain_cluster: Server, package: Package) -> None:
    now = package.now
    with package.closing(package.redis.RedisCluster.from_url(plain_cluster.url)) as cluster:
        with pytest.raises(ModuleMissingError):
            now(package.lock(cluster).acquire())
        several = package.made("MultiLock", cluster, name=["{7}:stock", "{7}:prices"])
        several.local.token = b"mine"
        with pytest.raises(ModuleMissingError):
            now(several.release())
        lock = package.lock(cluster, fallback=True)
        assert now(lock.acquire())
        assert lock.fence == 0
        now(lock.release())


async def test_in_a_cluster_a_task_without_the_option_spoils_nothing_for_others(plain_cluster: Server) -> None:
    async def work(fallback: bool) -> None:
        async with ours.Lock(client, "stock", timeout=30, sleep=0.01, fallback=fallback, wait="notify"):
            pass

    async with redis.asyncio.RedisCluster.from_url(plain_cluster.url) as client:
        # So that the line has the commands of both from now on.
        await work(True)
        done = await asyncio.gather(*map(work, [True, False] * 5), return_exceptions=True)
    assert done[::2] == [None] * 5
    assert all(isinstance(each, ModuleMissingError) for each in done[1::2])


@pytest.mark.parametrize(
    "told",
    [
        b"-ERR Command is not available: 'LOCK.ACQUIRE'. See https://example.com",
        b"-ERR unsupported command",
        b"-ERR UNKNOWN COMMAND 'lock.acquire'",
    ],
)
def test_a_proxy_that_says_in_its_own_words_that_it_lacks_the_module(
    plain: Server, package: Package, told: bytes
) -> None:
    with Proxy(plain.port) as proxy, package.client(port=proxy.port) as client:
        proxy.answer(rb"LOCK\.[A-Z]+", told)
        with pytest.raises(ModuleMissingError):
            package.now(package.lock(client).acquire())
        lock = package.lock(client, fallback=True)
        assert package.now(lock.acquire())
        assert (lock.fence, plain.admin.type("stock")) == (0, "string")
        package.now(lock.release())


def test_with_the_module_the_option_changes_nothing(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    with redis.Redis.from_url(server.url) as client, caplog.at_level(logging.WARNING, "redis_lock_client"):
        with Lock(client, "stock", timeout=30, fallback=True) as lock:
            assert lock.fence
        with RWLock(client, "stock", timeout=30, fallback=True).read():
            assert server.mode("stock") == "shared"
        assert not caplog.records
