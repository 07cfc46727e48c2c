"""Values that one client makes and all others get: `once`, and the decorators over it."""

import functools
import json
import pickle
import random
from queue import Queue
from typing import Any

import pytest
import redis

from redis_lock_client import FingerprintError, UnsupportedError, XFetch, idempotent, once, single_flight
from redis_lock_client.results import lock_key

from .package import Package
from .server import until, versions
from .topologies import cluster_of_four

LOCK = "{page}:once"


class Callers:
    """Calls of `once` over one client of either package, and their makers."""

    def __init__(self, package, client):
        self.package, self.client = package, client
        self.made: list[Any] = []
        self.orders: Queue[Any] = Queue()

    def makes(self, value=None):
        """A maker of this value, which is raised if it is an error; of the next order without one."""

        def make():
            self.made.append(value)
            made = self.orders.get(timeout=20) if value is None else value
            if isinstance(made, Exception):
                raise made
            return made

        return self.package.later(make)

    def now(self, value=None, name="page", **options):
        return self.package.now(self.package.locks.once(self.client, name, self.makes(value), **options))

    def begin(self, value=None, name="page", **options):
        options = {"wait": 20, **options}
        return self.package.begin(self.package.locks.once, self.client, name, self.makes(value), **options)

    def begin_making(self, **options):
        before = len(self.made)
        call = self.begin(**options)
        until(lambda: len(self.made) > before or call.done(), "a maker")
        assert len(self.made) > before, call.result()
        return call

    def decorated(self, decorator, *args, **options):
        """Decorate a function as one of the package. Its calls return what they lead to."""

        def decorate(function):
            made = getattr(self.package.locks, decorator)(self.client, *args, **options)(self.package.later(function))
            assert made.__name__ == function.__name__
            return lambda *args, **kwargs: self.package.begin(made, *args, **kwargs).result(20)

        return decorate


@pytest.fixture
def callers(server, package):
    with package.closing(package.redis.Redis(port=server.port)) as client:
        yield Callers(package, client)


@pytest.fixture
def proxied(proxy, package):
    # Some tests answer in the server's place.
    with package.closing(package.redis.Redis(port=proxy.port, protocol=3)) as client:
        yield Callers(package, client)


def counted(server, name):
    return int(server.admin.info("lock")[f"lock_{name}"])


def test_a_value_that_was_made_meanwhile_is_the_answer(server, proxy, proxied):
    proxy.answer(b"GET", b"_\r\n:-2", times=1)
    server.admin.set("page", "there")
    before = counted(server, "results_found")
    assert [proxied.now(b"new"), proxied.made, counted(server, "results_found") - before] == [b"there", [], 1]
    assert server.calls("lock.release") == 0


def test_a_making_costs_three_ways_to_the_server(server, callers):
    # The value is found also if it is kept for a short time, of which it is early for half.
    assert callers.now(b"value", keep=8) == callers.now(b"another", keep=8) == b"value"
    calls = {name: server.calls(name) for name in ("lock.once", "lock.renew", "lock.exec", "lock.release")}
    assert calls == {"lock.once": 1, "lock.renew": 0, "lock.exec": 1, "lock.release": 1}


@pytest.mark.parametrize("decodes", [False, True])
def test_all_get_what_the_client_reads_or_what_is_unpacked(server, package, decodes):
    with package.client(server.port, decode_responses=decodes) as client:
        callers = Callers(package, client)
        want = "wört" if decodes else "wört".encode()
        for made in ("wört", "wört".encode()):
            assert callers.now(made) == callers.now(b"another") == want
            server.admin.delete("page")
        packed = {"a": [1, "zwei"]}
        for codec in (json, pickle):
            options = {"pack": codec.dumps, "unpack": codec.loads, "name": codec.__name__}
            assert callers.now(packed, **options) == callers.now(7, **options) == packed
        assert callers.made == ["wört", "wört".encode(), packed, packed]


def test_what_cannot_be_packed_or_stored_leaves_nothing(server, callers):
    with pytest.raises(redis.DataError):
        callers.now(object())
    with pytest.raises(TypeError, match="serializable"):
        callers.now(object(), pack=json.dumps)
    server.admin.execute_command("ACL", "SETUSER", "default", "-set")
    with pytest.raises(redis.exceptions.NoPermissionError):
        callers.now(b"value")
    assert server.admin.dbsize() == 0


def test_a_maker_that_has_heard_of_its_loss_keeps_its_value(server, callers, caplog):
    maker = callers.begin_making(ttl=1)
    before = counted(server, "lost_renewals")
    server.admin.delete(LOCK)
    until(lambda: counted(server, "lost_renewals") > before, "a renewal in vain")
    callers.orders.put(b"late")
    assert maker.result(20) == b"late"
    assert server.admin.dbsize() == 0
    assert "may not be stored" in caplog.text
    assert callers.now(b"next") == b"next"


def test_where_the_server_takes_no_writes_an_early_value_is_used_and_a_new_one_stored_later(server, callers):
    server.admin.set("page", "old", px=9_000)
    server.admin.config_set("min-replicas-to-write", 1)
    assert callers.now(b"new") == b"old"
    assert [server.calls("lock.once"), callers.made] == [0, []]
    server.admin.config_set("min-replicas-to-write", 0)
    maker = callers.begin_making()
    server.admin.config_set("min-replicas-to-write", 1)
    server.admin.config_resetstat()
    callers.orders.put(b"new")
    until(lambda: server.admin.info("errorstats").get("errorstat_NOREPLICAS"), "a refusal")
    server.admin.config_set("min-replicas-to-write", 0)
    assert maker.result(20) == b"new"
    assert server.admin.get("page") == "new"


def test_an_early_value_that_ends_meanwhile_is_made(server, proxy, proxied):
    maker = proxied.begin_making()
    proxy.answer(b"GET", b"$3\r\nold\r\n:1", times=1)
    waiting = proxied.begin(b"another")
    server.wait_for_waiters(LOCK, 1)
    proxied.orders.put(b"value")
    assert [maker.result(20), waiting.result(20)] == [b"value", b"value"]


def test_xfetch_is_early_at_random(server, callers, monkeypatch):
    measured, given = XFetch(), XFetch(delta=5)
    assert measured.seconds() == 0
    for early in (measured, given):
        assert callers.now(b"value", early=early, name=str(early)) == b"value"
    assert 0 < (measured.delta or 0) < 20
    assert given.delta == 5
    for drawn, seconds, found in ((0.1, 0.527, b"old"), (0.9, 11.513, b"new")):
        monkeypatch.setattr(random, "random", lambda drawn=drawn: drawn)
        assert given.seconds() == XFetch(delta=1, beta=5).seconds() == pytest.approx(seconds, abs=0.001)
        server.admin.set("page", "old", px=9_000)
        # None is never early.
        assert callers.now(b"never", early=None) == b"old"
        assert callers.now(b"new", early=given) == found


def test_names_in_bytes_have_their_lock_too():
    for name in ("page", "{a}page", "{}page", "page{", "ä\n{ö}", ""):
        assert lock_key(name.encode()) == str(lock_key(name)).encode()


@pytest.mark.parametrize("word", [b"LOCK.ONCE", b"LOCK.EXEC"])
def test_a_lost_answer_makes_nothing_twice(server, proxy, proxied, word):
    proxy.lose_reply_to(word)
    assert proxied.now(b"value") == proxied.now(b"another") == b"value"
    assert [proxy.lost, proxied.made, server.admin.exists(LOCK)] == [1, [b"value"], 0]


def test_another_type_is_told_at_once(server, proxy, proxied):
    server.admin.rpush("page", "one")
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        proxied.now(b"value")
    proxy.answer(b"GET", b"_\r\n:-2", times=1)
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        proxied.now(b"value", wait=None)
    assert server.calls("lock.once") == 1


@pytest.mark.parametrize("there", [False, True])
def test_a_module_before_the_command_is_told(server, proxy, proxied, there):
    proxy.answer(b"LOCK.ONCE", b"-ERR unknown command 'LOCK.ONCE', with args beginning with: 'page' ")
    if there:
        server.admin.set("page", "old", px=9_000)
    with pytest.raises(UnsupportedError, match=r"does not know LOCK\.ONCE") as error:
        proxied.now(b"value")
    assert error.type is UnsupportedError


@pytest.mark.parametrize("is_early", [False, True])
def test_who_is_interrupted_leaves_the_queue_and_the_lock(server, callers, is_early):
    take = functools.partial(callers.package.locks.once, callers.client, "page")
    if is_early:
        server.admin.set("page", "old", px=9_000)
        # That the maker is interrupted is no failure, for which there is the old value.
        callers.package.interrupt(take, lambda: callers.made, make=callers.makes())
    else:
        maker = callers.begin_making()
        callers.package.interrupt(take, lambda: server.waiters(LOCK), make=callers.makes(), wait=20)
        assert not server.waiters(LOCK)
        callers.orders.put(ZeroDivisionError())
        assert isinstance(maker.exception(20), ZeroDivisionError)
    callers.orders.put(b"")
    assert not server.admin.exists(LOCK)


async def test_a_task_that_is_cancelled_while_it_stores_holds_nothing(server, proxy):
    with Package("asyncio") as package, package.client(proxy.port) as client:
        proxy.answer(rb"LOCK\.EXEC", b"-TRYAGAIN later\r\n:0")
        package.interrupt(package.locks.once, lambda: proxy.refusals, redis=client, name="page", make=later)
    assert server.admin.dbsize() == 0


async def later():
    return b"value"


def test_what_would_be_made_after_the_release_is_refused(client):
    uses: list[Any] = [
        lambda make: once(client, "page", make),
        lambda make: single_flight(client, "page")(make)(),
        lambda make: idempotent(client, "page")(make)(),
    ]
    for use in uses:
        for make in (later, lambda: later()):
            with pytest.raises(TypeError, match=r"redis_lock_client\.asyncio"):
                use(make)
        # An error that no generator lets pass.
        with pytest.raises(StopIteration):
            use(lambda: next(iter(())))
    assert not client.keys()


def test_the_function_is_not_hidden_by_the_module_of_its_name():
    import redis_lock_client.once

    assert redis_lock_client.once is once


def test_calls_with_one_key_run_once(server, callers):
    ran: list[tuple[Any, ...]] = []

    def page(number, lang="en"):
        ran.append((number, lang))
        callers.orders.get(timeout=20)
        return f"{number} {lang}"

    flying = callers.package.locks.single_flight(callers.client, "page:{number}:{lang}", wait=20)
    decorated = flying(callers.package.later(page))
    calls = [callers.package.begin(decorated, *args, **more) for args, more in [((7,), {}), ((), {"number": 7})] * 2]
    server.wait_for_waiters("{page:7:en}:once", 3)
    for _ in range(2):
        callers.orders.put(None)
    assert [call.result(20) for call in calls] == [b"7 en"] * 4
    assert ran == [(7, "en")]
    # A key may be a function, and the names bytes.
    named = callers.decorated("single_flight", lambda number, lang: b"{%d}:%s" % (number, lang.encode()), keep=9)(page)
    callers.orders.put(None)
    assert named(8, lang="de") == b"8 de"
    assert 0 < server.admin.pttl("{8}:de") <= 9_000


def test_an_idempotent_call_runs_once_for_its_arguments(server, callers):
    charged: list[int] = []

    @callers.decorated("idempotent", "charge:{key}", pack=json.dumps, unpack=json.loads)
    def charge(key, cents):
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
    # Nor is a value that another program has put there.
    server.admin.set("charge:c", "short")
    with pytest.raises(FingerprintError):
        charge("c", 500)


def test_a_fingerprint_may_leave_arguments_out(callers):
    def charge(key, cents, trace):
        return "done"

    for_all = callers.decorated("idempotent", "{key}")(charge)
    with pytest.raises(TypeError, match="needs a `fingerprint`"):
        for_all("a", 500, object())
    for_some = callers.decorated("idempotent", "{key}", fingerprint=lambda key, cents, trace: str(cents))(charge)
    assert for_some("a", 500, object()) == for_some("a", 500, object()) == b"done"
    with pytest.raises(FingerprintError):
        for_some("a", 501, object())


def test_values_in_a_cluster(package):
    with cluster_of_four(versions()[-1]) as cluster:
        client = package.redis.RedisCluster(host="127.0.0.1", port=cluster.nodes[1].port)
        with package.closing(client):
            for name in ("page:1", "{user:2}:page:3", b"page:4"):
                callers, key = Callers(package, client), lock_key(name)
                maker = callers.begin_making(name=name)
                waiting = [callers.begin(b"another", name=name) for _ in range(3)]
                cluster.owner(key).wait_for_waiters(key, 3)
                callers.orders.put(b"value")
                assert [call.result(20) for call in (maker, *waiting)] == [b"value"] * 4
                assert callers.now(b"another", name=name) == b"value"
