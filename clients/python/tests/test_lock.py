"""The interface of redis-py's lock, and what the module adds to it. What redis-py's own tests cover is left to them."""

import time

import redis
import redis.lock

from redis_lock_client import Lock

LONGEST_MS = 2**48


def test_a_lock_without_timeout_has_the_longest_ttl(client: redis.Redis) -> None:
    with Lock(client, "stock"):
        assert LONGEST_MS - 60_000 < client.pttl("stock") <= LONGEST_MS


def test_extending_adds_to_what_is_left_of_this_hold(client: redis.Redis) -> None:
    lock = Lock(client, "stock", timeout=10)
    with lock:
        client.pexpire("stock", 4000)
        lock.extend(10)
        assert 13_000 < client.pttl("stock") <= 14_000
        lock.extend(3, replace_ttl=True)
        assert client.pttl("stock") <= 3000
        # Never beyond what the module takes, and never for ever by mistake.
        lock.extend(LONGEST_MS)
        assert client.pttl("stock") <= LONGEST_MS
        lock.extend(10, replace_ttl=True)
        lock.extend(0, replace_ttl=True)
        assert client.pttl("stock") < 10
        time.sleep(0.02)
        assert not lock.locked()
        lock.acquire()
