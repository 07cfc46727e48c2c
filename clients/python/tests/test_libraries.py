"""The library of the client: its classes, its errors, and that of the other one nothing."""

import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import redis
import redis.asyncio
import redis.asyncio.lock
import redis.lock

import redis_lock_client
import redis_lock_client.asyncio as ours
from redis_lock_client import Lock, LockError, LockNotOwnedError, MultiLock, NotSupportedError, RWLock, Semaphore
from redis_lock_client._libraries import library, library_of

OTHER = "valkey" if redis.__name__ == "redis" else "redis"


@pytest.mark.parametrize("of_asyncio", [False, True], ids=["an asyncio client", "a sync client"])
def test_a_client_of_the_wrong_kind_is_refused_at_construction(of_asyncio: bool) -> None:
    clients = redis.Redis() if of_asyncio else redis.asyncio.Redis()
    makes: list[Callable[[Any], object]] = [
        lambda package: package.Lock(clients, "stock", timeout=30),
        lambda package: package.Semaphore(clients, "stock", 3),
        lambda package: package.MultiLock(clients, ["stock"]),
        lambda package: package.RWLock(clients, "stock"),
    ]
    for make in makes:
        right = "its locks are in redis_lock_client$" if of_asyncio else r"its locks are in redis_lock_client\.asyncio$"
        with pytest.raises(TypeError, match=right):
            make(ours if of_asyncio else redis_lock_client)
        make(redis_lock_client if of_asyncio else ours)


def test_a_cluster_client_of_the_wrong_kind_is_refused() -> None:
    with pytest.raises(TypeError, match=r"redis_lock_client\.asyncio$"):
        Lock(redis.asyncio.RedisCluster(host="127.0.0.1"), "stock")


def test_a_client_that_only_behaves_like_one_is_taken() -> None:
    class Wrapper:
        def __init__(self) -> None:
            self.connection_pool = redis.Redis().connection_pool

        def execute_command(self, *_: object) -> None: ...

    assert isinstance(Lock(Wrapper(), "stock"), redis.lock.Lock)
    with pytest.raises(TypeError, match=r"redis_lock_client$"):
        ours.Lock(Wrapper(), "stock")


def test_each_lock_is_one_of_the_library(client: redis.Redis) -> None:
    for lock in (Lock(client, "a"), Semaphore(client, "a", 3), MultiLock(client, ["a"]), RWLock(client, "a").read()):
        assert isinstance(lock, redis.lock.Lock)
        assert isinstance(lock, Lock)
        assert type(lock).__module__.startswith(redis.lock.Lock.__module__) is False
    assert isinstance(ours.Lock(redis.asyncio.Redis(), "a"), redis.asyncio.lock.Lock)

    class Own(Lock):
        """Of the application."""

    assert isinstance(Own(client, "a"), Own)
    assert type(Own(client, "a")) is type(Own(client, "b"))


def test_the_errors_are_those_of_the_package_and_of_the_library(client: redis.Redis) -> None:
    lock = Lock(client, "stock", timeout=30)
    with pytest.raises(LockError) as not_held:
        lock.release()
    assert isinstance(not_held.value, redis.exceptions.LockError)
    assert isinstance(not_held.value, ValueError)
    lock.acquire()
    client.delete("stock")
    with pytest.raises(redis.exceptions.LockNotOwnedError) as lost:
        lock.release()
    assert isinstance(lost.value, LockNotOwnedError)
    assert isinstance(lost.value, LockError)
    assert (lost.value.lock_name, str(lost.value)) == ("stock", "Cannot release a lock that's no longer owned")


def test_the_errors_go_through_pickle() -> None:
    """As those of a task in another process do."""
    its = library(redis.__name__)
    for error in (
        its.lock_error("no", "stock"),
        its.not_owned("release", "stock"),
        its.cancelled("stock"),
        its.not_supported("no"),
    ):
        again = pickle.loads(pickle.dumps(error))
        assert repr(again) == repr(error)
        assert (type(again), again.args, vars(again)) == (type(error), error.args, vars(error))
    assert isinstance(again, NotSupportedError)
    assert isinstance(again, redis.exceptions.ResponseError)


def test_the_other_library_is_not_imported() -> None:
    name = redis.__name__
    program = f"""
import sys
sys.modules["{OTHER}"] = None
import redis_lock_client, redis_lock_client.asyncio as ours
assert "{name}" not in sys.modules
import {name}, {name}.asyncio
client = {name}.{redis.Redis.__name__}()
lock = redis_lock_client.Lock(client, "stock", timeout=30)
assert isinstance(lock, {name}.lock.Lock)
ours.Lock({name}.asyncio.{redis.Redis.__name__}(), "stock", timeout=30)
try:
    lock.release()
except {name}.exceptions.LockError:
    print("done")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "done\n", done.stderr


def test_a_library_that_is_too_old_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis, "__version__", "4.6.0")
    with pytest.raises(ImportError, match=r"4\.6\.0 is too old: redis 5 or newer"):
        type(library(redis.__name__))(redis.__name__)


def test_a_client_of_either_library_is_told_apart() -> None:
    assert library_of(redis.Redis(), False, "").name == redis.__name__
    if OTHER == "valkey":
        valkey = pytest.importorskip("valkey")
        assert library_of(valkey.Valkey(), False, "").name == "valkey"
        assert isinstance(Lock(valkey.Valkey(), "stock"), valkey.lock.Lock)
        assert not isinstance(Lock(valkey.Valkey(), "stock"), redis.lock.Lock)
