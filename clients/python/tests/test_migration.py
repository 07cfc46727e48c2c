"""Old clients with redis-py's own lock and new ones with ours on the same name, while a fleet is being changed."""

import pytest
import redis
import redis.lock

from redis_lock_client import Lock

from .server import Server


def test_a_new_client_asks_an_old_lock_at_a_pace(server: Server, client: redis.Redis) -> None:
    client.set("stock", "old", nx=True)
    assert not Lock(client, "stock").acquire(blocking_timeout=0.5)
    # Every 50 ms, and once at the end.
    assert 3 <= server.calls("lock.acquire") <= 12


def test_an_old_client_waits_for_a_new_one(client: redis.Redis) -> None:
    old, new = redis.lock.Lock(client, "stock", timeout=30, sleep=0.01), Lock(client, "stock", timeout=30)
    with new:
        assert not old.acquire(blocking=False)
        assert not old.acquire(blocking_timeout=0.1)
        # It looks into the string that is none; nothing happens to the lock.
        for look in (old.locked, old.owned):
            with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
                look()
        assert new.owned()
    assert old.acquire(blocking_timeout=5)
    assert client.type("stock") == b"string"


def test_a_late_old_client_does_no_harm(client: redis.Redis) -> None:
    late = redis.lock.Lock(client, "stock", timeout=0.05)
    assert late.acquire()
    with Lock(client, "stock", timeout=30) as new:
        for late_step in (lambda: late.extend(10), late.reacquire, late.release):
            with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
                late_step()
        assert new.owned()
        assert 29_000 < client.pttl("stock") <= 30_000
