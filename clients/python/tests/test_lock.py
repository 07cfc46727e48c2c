"""The interface of redis-py's lock, and what the module adds to it. What redis-py's own tests cover is left to them."""

import time

import pytest
import redis
import redis.lock

from redis_lock_client import Lock, LockNotOwnedError

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


@pytest.mark.parametrize("how", ["expired", "forced", "overwritten", "taken over"])
def test_who_lost_the_lock_is_told_so_and_does_no_harm(client: redis.Redis, how: str) -> None:
    late = Lock(client, "stock", timeout=10)
    for late_step in (late.release, late.reacquire, lambda: late.extend(10), lambda: late.extend(10, True)):
        assert late.acquire()
        client.delete("stock")
        if how == "expired":
            client.execute_command("LOCK.ACQUIRE", "stock", late.local.token, 1)
            time.sleep(0.01)
        elif how == "overwritten":
            client.set("stock", "a string")
        elif how == "taken over":
            assert Lock(client, "stock", timeout=10).acquire()
        assert not late.owned()
        before = client.dump("stock")
        with pytest.raises(LockNotOwnedError) as error:
            late_step()
        assert error.value.lock_name == "stock"
        assert client.dump("stock") == before
        client.delete("stock")
