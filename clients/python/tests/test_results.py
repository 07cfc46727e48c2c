"""Values that one client makes and all others get: `once`, and the decorators over it."""

import asyncio
import functools
import json
import pickle
import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from queue import Queue
from typing import Any

import pytest
import redis
import redis.asyncio

from redis_lock_client import (
    FingerprintError,
    ModuleMissingError,
    UnsupportedError,
    XFetch,
    idempotent,
    once,
    single_flight,
)
from redis_lock_client import asyncio as ours
from redis_lock_client.results import lock_key

from .proxy import Proxy
from .server import Server, until, versions
from .topologies import Cluster, cluster_of_four
from .worker import Package

LOCK = "{page}:once"
Client = redis.asyncio.Redis


class Callers:
    """Calls of `once` in the background, over one client of either package, and their makers."""

    def __init__(self, package: Package, port: int, **client: Any) -> None:
        self.package = package
        self.client: Any = package.redis.Redis(port=port, **client)
        self.pool = ThreadPoolExecutor(max_workers=20)
        self.made: list[Any] = []
        self.orders: Queue[Any] = Queue()

    def end(self) -> None:
        self.package.close(self.client)
        self.pool.shutdown(wait=False)

    def makes(self, value: Any = None) -> Any:
        """A maker of this value, which is raised if it is an error; of the next order without one."""

        def make() -> Any:
            self.made.append(value)
            made = self.orders.get(timeout=20) if value is None else value
            if isinstance(made, Exception):
                raise made
            return made

        async def make_later() -> Any:
            return await asyncio.to_thread(make)

        return make if self.package.is_sync else make_later

    def now(self, value: Any = None, name: Any = "page", **options: Any) -> Any:
        return self.package.now(self.package.locks.once(self.client, name, self.makes(value), **options))

    def begin(self, value: Any = None, **options: Any) -> "Future[Any]":
        return self.pool.submit(functools.partial(self.now, value, **{"wait": 20, **options}))

    def begin_making(self, **options: Any) -> "Future[Any]":
        before = len(self.made)
        call = self.begin(**options)
        until(lambda: len(self.made) > before or call.done(), "a maker")
        assert len(self.made) > before, call.result()
        return call


@pytest.fixture
def callers(server: Server, package: Package) -> Iterator[Callers]:
    callers = Callers(package, server.port)
    yield callers
    callers.end()


@pytest.fixture
def proxied(server: Server, package: Package) -> Iterator[tuple[Callers, Proxy]]:
    with Proxy(server.port) as proxy:
        # Some tests answer in the server's place.
        callers = Callers(package, proxy.port, protocol=3)
        yield callers, proxy
        callers.end()


def counted(server: Server, name: str) -> int:
    return int(server.admin.info("lock")[f"lock_{name}"])


def test_those_who_wait_get_it_after_many_slices(server: Server, package: Package) -> None:
    callers = Callers(package, server.port, socket_timeout=0.4)
    maker = callers.begin_making()
    waiting = callers.begin(b"another")
    until(lambda: server.calls("lock.once") >= 4, "a third slice")
    callers.orders.put(b"value")
    assert [maker.result(20), waiting.result(20), callers.made] == [b"value", b"value", [None]]
    callers.end()


def test_a_value_that_was_made_meanwhile_is_the_answer(server: Server, proxied: tuple[Callers, Proxy]) -> None:
    callers, proxy = proxied
    proxy.answer(b"GET", b"_\r\n:-2", times=1)
    server.admin.set("page", "there")
    before = counted(server, "results_found")
    assert [callers.now(b"new"), callers.made, counted(server, "results_found") - before] == [b"there", [], 1]
    assert server.calls("lock.release") == 0


def test_a_making_costs_three_ways_to_the_server(server: Server, callers: Callers) -> None:
    callers.now(b"value")
    calls = {name: server.calls(name) for name in ("pttl", "lock.once", "lock.renew", "lock.exec", "lock.release")}
    assert calls == {"pttl": 1, "lock.once": 1, "lock.renew": 0, "lock.exec": 1, "lock.release": 1}


@pytest.mark.parametrize("decodes", [False, True])
@pytest.mark.parametrize("made", ["wört", "wört".encode()])
def test_all_get_what_the_client_reads(server: Server, package: Package, decodes: bool, made: Any) -> None:
    callers = Callers(package, server.port, decode_responses=decodes)
    want = "wört" if decodes else "wört".encode()
    assert callers.now(made) == callers.now(b"another") == want
    assert callers.made == [made]
    callers.end()


@pytest.mark.parametrize("codec", [json, pickle])
def test_values_are_packed(server: Server, package: Package, codec: Any) -> None:
    callers = Callers(package, server.port, decode_responses=True)
    value = {"a": [1, "zwei"]}
    options = {"pack": codec.dumps, "unpack": codec.loads}
    assert callers.now(value, **options) == callers.now(7, **options) == value
    callers.end()


def test_what_cannot_be_packed_leaves_nothing(server: Server, callers: Callers) -> None:
    with pytest.raises(redis.DataError):
        callers.now(object())
    with pytest.raises(TypeError, match="serializable"):
        callers.now(object(), pack=json.dumps)
    assert server.admin.dbsize() == 0


def test_a_maker_that_has_heard_of_its_loss_keeps_its_value(
    server: Server, callers: Callers, caplog: pytest.LogCaptureFixture
) -> None:
    maker = callers.begin_making(ttl=1)
    before = counted(server, "lost_renewals")
    server.admin.delete(LOCK)
    until(lambda: counted(server, "lost_renewals") > before, "a renewal in vain")
    callers.orders.put(b"late")
    assert maker.result(20) == b"late"
    assert server.admin.dbsize() == 0
    assert "may not be stored" in caplog.text
    assert callers.now(b"next") == b"next"


def test_an_early_value_is_used_where_the_server_takes_no_writes(server: Server, callers: Callers) -> None:
    server.admin.set("page", "old", px=9_000)
    server.admin.config_set("min-replicas-to-write", 1)
    try:
        assert callers.now(b"new") == b"old"
        assert [server.calls("lock.once"), callers.made] == [0, []]
    finally:
        server.admin.config_set("min-replicas-to-write", 0)
    assert callers.now(b"new") == b"new"


def test_an_early_value_that_ends_meanwhile_is_made(server: Server, proxied: tuple[Callers, Proxy]) -> None:
    callers, proxy = proxied
    maker = callers.begin_making()
    proxy.answer(b"GET", b"$3\r\nold\r\n:1", times=1)
    waiting = callers.begin(b"another")
    server.wait_for_waiters(LOCK, 1)
    callers.orders.put(b"value")
    assert [maker.result(20), waiting.result(20)] == [b"value", b"value"]


def test_a_short_keep_makes_hits_too(server: Server, callers: Callers) -> None:
    assert callers.now(b"value", keep=8) == callers.now(b"another", keep=8) == b"value"
    assert server.calls("lock.once") == 1


def test_early_none_never_is(server: Server, callers: Callers) -> None:
    server.admin.set("page", "old", px=9_000)
    assert callers.now(b"new", early=None) == b"old"
    assert server.calls("lock.once") == 0


def test_xfetch_is_early_at_random(monkeypatch: pytest.MonkeyPatch) -> None:
    for drawn, seconds in ((0.0, 0.0), (0.5, 1.386), (0.9, 4.605)):
        monkeypatch.setattr(random, "random", lambda drawn=drawn: drawn)
        assert XFetch(delta=2).seconds() == pytest.approx(seconds, abs=0.001)
        assert XFetch(delta=1, beta=2).seconds() == pytest.approx(seconds, abs=0.001)
        assert XFetch().seconds() == 0


def test_xfetch_measures_and_makes_the_next(server: Server, callers: Callers, monkeypatch: pytest.MonkeyPatch) -> None:
    measured, given = XFetch(), XFetch(delta=5)
    for early in (measured, given):
        maker = callers.begin_making(early=early, name=str(early))
        callers.orders.put(b"value")
        maker.result(20)
    assert measured.delta is not None
    assert 0 < measured.delta < 20
    assert given.delta == 5
    server.admin.set("page", "old", px=9_000)
    monkeypatch.setattr(random, "random", lambda: 0.1)
    assert callers.now(b"new", early=given) == b"old"
    monkeypatch.setattr(random, "random", lambda: 0.9)
    assert callers.now(b"new", early=given) == b"new"


def test_names_in_bytes_have_their_lock_too() -> None:
    for name in ("page", "{a}page", "{}page", "page{", "ä\n{ö}", ""):
        assert lock_key(name.encode()) == str(lock_key(name)).encode()


@pytest.mark.parametrize("word", [b"LOCK.ONCE", b"LOCK.EXEC"])
def test_a_lost_answer_makes_nothing_twice(
    server: Server, proxied: tuple[Callers, Proxy], word: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    callers, proxy = proxied
    proxy.lose_reply_to(word)
    assert callers.now(b"value") == callers.now(b"another") == b"value"
    assert [proxy.lost, callers.made, server.admin.exists(LOCK)] == [1, [b"value"], 0]


def test_a_value_is_stored_when_the_server_takes_it(server: Server, callers: Callers) -> None:
    maker = callers.begin_making()
    server.admin.config_set("min-replicas-to-write", 1)
    callers.orders.put(b"value")
    until(lambda: server.admin.info("errorstats").get("errorstat_NOREPLICAS"), "a refusal")
    server.admin.config_set("min-replicas-to-write", 0)
    assert maker.result(20) == b"value"
    assert server.admin.get("page") == "value"


def test_a_right_that_is_missing_is_told(server: Server, callers: Callers) -> None:
    server.admin.execute_command("ACL", "SETUSER", "default", "-set")
    try:
        with pytest.raises(redis.exceptions.NoPermissionError):
            callers.now(b"value")
    finally:
        server.admin.execute_command("ACL", "SETUSER", "default", "+set")
    assert server.admin.dbsize() == 0


def test_another_type_is_told_at_once(server: Server, proxied: tuple[Callers, Proxy]) -> None:
    callers, proxy = proxied
    server.admin.rpush("page", "one")
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        callers.now(b"value")
    proxy.answer(b"GET", b"_\r\n:-2", times=1)
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        callers.now(b"value", wait=None)
    assert server.calls("lock.once") == 1


def test_times_are_checked(callers: Callers) -> None:
    for option, value in [("keep", 0), ("ttl", 0), ("ttl", -1), ("ttl", 0.001), ("early", -1)]:
        with pytest.raises(ValueError, match=f"^{option} must"):
            callers.now(b"value", **{option: value})
    assert not callers.made


def test_a_module_before_the_command_is_told(server: Server, proxied: tuple[Callers, Proxy]) -> None:
    callers, proxy = proxied
    proxy.answer(b"LOCK.ONCE", b"-ERR unknown command 'LOCK.ONCE', with args beginning with: 'page' ")
    for there in (False, True):
        if there:
            server.admin.set("page", "old", px=9_000)
        with pytest.raises(UnsupportedError, match=r"does not know LOCK\.ONCE") as error:
            callers.now(b"value")
        assert not isinstance(error.value, ModuleMissingError)


async def test_a_cancelled_task_leaves_the_queue_and_the_lock(server: Server, async_client: Client) -> None:
    begun, made = asyncio.Event(), []

    async def make() -> bytes:
        begun.set()
        await asyncio.sleep(20)
        return b"value"

    async def make_now() -> bytes:
        made.append(1)
        return b"next"

    maker = asyncio.create_task(ours.once(async_client, "page", make))
    await begun.wait()
    waiting, last = (asyncio.create_task(ours.once(async_client, "page", make_now, wait=20)) for _ in range(2))
    await asyncio.to_thread(server.wait_for_waiters, LOCK, 2)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await asyncio.to_thread(server.wait_for_waiters, LOCK, 1)
    maker.cancel()
    with pytest.raises(asyncio.CancelledError):
        await maker
    assert await last == b"next"
    assert made == [1]


async def test_a_cancelled_early_maker_is_no_failure(server: Server, async_client: Client) -> None:
    server.admin.set("page", "old", px=9_000)
    begun = asyncio.Event()

    async def make() -> bytes:
        begun.set()
        await asyncio.sleep(20)
        return b"value"

    maker = asyncio.create_task(ours.once(async_client, "page", make))
    await begun.wait()
    maker.cancel()
    with pytest.raises(asyncio.CancelledError):
        await maker
    assert not server.admin.exists(LOCK)


async def test_a_task_that_is_cancelled_while_it_stores_holds_nothing(server: Server) -> None:
    with Proxy(server.port) as proxy:
        async with redis.asyncio.Redis(port=proxy.port) as client:
            proxy.answer(rb"LOCK\.EXEC", b"-TRYAGAIN later\r\n:0")
            maker = asyncio.create_task(ours.once(client, "page", later))
            await asyncio.to_thread(until, lambda: proxy.refusals, "the storing")
            assert server.admin.exists(LOCK)
            maker.cancel()
            with pytest.raises(asyncio.CancelledError):
                await maker
    assert server.admin.dbsize() == 0


async def later() -> bytes:
    return b"value"


def test_what_would_be_made_after_the_release_is_refused(server: Server, client: redis.Redis) -> None:
    for decorate in (single_flight(client, "page"), idempotent(client, "page")):
        with pytest.raises(TypeError, match=r"redis_lock_client\.asyncio"):
            decorate(later)
    for make in (later, lambda: later()):
        with pytest.raises(TypeError, match=r"redis_lock_client\.asyncio"):
            once(client, "page", make)
    assert server.admin.dbsize() == 0


def test_the_function_is_not_hidden_by_the_module_of_its_name() -> None:
    import redis_lock_client.once

    assert redis_lock_client.once is once


def decorated(package: Package, decorator: Any, *args: Any, **options: Any) -> Callable[[Any], Any]:
    """The function as one of the package, decorated, whose calls return what they lead to."""

    def decorate(function: Any) -> Any:
        @functools.wraps(function)
        async def later(*args: Any, **kwargs: Any) -> Any:
            return await asyncio.to_thread(function, *args, **kwargs)

        made = getattr(package.locks, decorator)(*args, **options)(function if package.is_sync else later)
        assert made.__name__ == function.__name__
        return lambda *args, **kwargs: package.now(made(*args, **kwargs))

    return decorate


def test_calls_with_one_key_run_once(server: Server, callers: Callers) -> None:
    ran: list[tuple[Any, ...]] = []
    go = threading.Event()

    @decorated(callers.package, "single_flight", callers.client, "page:{number}:{lang}", wait=20)
    def page(number: int, lang: str = "en") -> str:
        ran.append((number, lang))
        assert go.wait(20)
        return f"{number} {lang}"

    calls = [callers.pool.submit(page, 7) for _ in range(5)]
    server.wait_for_waiters("{page:7:en}:once", 4)
    go.set()
    assert [call.result(20) for call in calls] == [b"7 en"] * 5
    assert [page(number=7, lang="en"), page(8, "de")] == [b"7 en", b"8 de"]
    assert ran == [(7, "en"), (8, "de")]


def test_a_key_may_be_a_function(server: Server, callers: Callers) -> None:
    @decorated(callers.package, "single_flight", callers.client, lambda user, page: b"{%d}:%d" % (user, page), keep=9)
    def shown(user: int, page: int) -> str:
        return f"{user} {page}"

    assert shown(3, page=4) == b"3 4"
    assert 0 < server.admin.pttl("{3}:4") <= 9_000


def test_an_idempotent_call_runs_once_for_its_arguments(server: Server, callers: Callers) -> None:
    charged: list[int] = []

    @decorated(callers.package, "idempotent", callers.client, "charge:{key}", pack=json.dumps, unpack=json.loads)
    def charge(key: str, cents: int) -> dict[str, int]:
        if cents < 0:
            raise ValueError("too little")
        charged.append(cents)
        return {"cents": cents}

    with pytest.raises(ValueError, match="too little"):
        charge("a", -1)
    assert charge("a", 500) == charge("a", cents=500) == {"cents": 500}
    assert charge("b", 500) == {"cents": 500}
    with pytest.raises(FingerprintError, match=r"charge:a.*other arguments"):
        charge("a", 501)
    assert charged == [500, 500]
    assert 86_000_000 < server.admin.pttl("charge:a") <= 86_400_000


def test_a_fingerprint_may_leave_arguments_out(callers: Callers) -> None:
    def charge(key: str, cents: Any, trace: object) -> str:
        return "done"

    for_all = decorated(callers.package, "idempotent", callers.client, "{key}")(charge)
    with pytest.raises(TypeError, match="needs a `fingerprint`"):
        for_all("a", 500, object())
    for_some = decorated(
        callers.package, "idempotent", callers.client, "{key}", fingerprint=lambda key, cents, trace: str(cents)
    )(charge)
    assert for_some("a", 500, object()) == for_some("a", 500, object()) == b"done"
    with pytest.raises(FingerprintError):
        for_some("a", 501, object())


def test_a_value_under_the_key_that_is_none_of_ours_is_refused(server: Server, callers: Callers) -> None:
    server.admin.set("a", "short")
    with pytest.raises(FingerprintError):
        decorated(callers.package, "idempotent", callers.client, "{key}")(lambda key: b"")("a")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with cluster_of_four(versions()[-1]) as found:
        yield found


@pytest.mark.parametrize("name", ["page:1", "{user:2}:page:3", b"page:4"])
def test_values_in_a_cluster(cluster: Cluster, package: Package, name: Any) -> None:
    callers = Callers(package, cluster.nodes[0].port)
    callers.client = package.redis.RedisCluster(host="127.0.0.1", port=cluster.nodes[1].port)
    package.now(callers.client.delete(name))
    maker = callers.begin_making(name=name)
    waiting = [callers.begin(b"another", name=name) for _ in range(3)]
    key: Any = lock_key(name)
    until(
        lambda: sum(node.info(key).get("waiter-count", 0) for node in cluster.nodes if owns(node, key)) == 3, "waiters"
    )
    callers.orders.put(b"value")
    assert [call.result(20) for call in (maker, *waiting)] == [b"value"] * 4
    assert callers.now(b"another", name=name) == b"value"
    callers.end()


def owns(node: Server, key: Any) -> bool:
    try:
        node.admin.exists(key)
    except redis.ResponseError:
        return False
    return True
