"""What a user of the lock must be allowed, and what comes of it when it is not."""

import pytest
import redis

from redis_lock_client import Lock, MultiLock, Semaphore, run_once

from .server import Server

ALLOWED = ("+lock.acquire", "+lock.release", "+lock.renew", "+lock.info", "+exists", "+pttl")


@pytest.fixture
def user(server: Server) -> redis.Redis:
    server.admin.execute_command("ACL", "SETUSER", "app", "reset", "on", ">secret", "~app:*", *ALLOWED)
    return redis.Redis(port=server.port, username="app", password="secret")


def test_six_commands_are_enough(server: Server, user: redis.Redis) -> None:
    server.admin.set("app:stock", "old", px=100)
    with Lock(user, "app:stock", timeout=30) as lock:
        assert lock.locked()
        assert lock.owned()
        lock.extend(10)
        lock.reacquire()
        with lock.keep_alive():
            assert lock.owned()


def test_a_foreign_lock_is_refused(user: redis.Redis) -> None:
    with pytest.raises(redis.exceptions.NoPermissionError):
        Lock(user, "stock", timeout=30).acquire()


def test_a_right_that_is_missing_is_told(server: Server, user: redis.Redis) -> None:
    server.admin.execute_command("ACL", "SETUSER", "app", "-lock.release")
    lock = Lock(user, "app:stock", timeout=30)
    lock.acquire()
    with pytest.raises(redis.exceptions.NoPermissionError):
        lock.release()


def test_what_several_keys_and_guarded_commands_need(server: Server, user: redis.Redis) -> None:
    if server.version.startswith("redis-6"):
        pytest.skip("no LOCK.EXEC")
    more = ("+lock.macquire", "+lock.check", "+lock.exec", "+multi", "+exec", "+incr")
    server.admin.execute_command("ACL", "SETUSER", "app", *more)
    with Semaphore(user, "app:permits", 3, timeout=30) as permit:
        assert permit.available() == 2
    with MultiLock(user, ["app:stock", "app:prices"], timeout=30) as lock:
        assert lock.owned()
        lock.reacquire()
        assert lock.exec("INCR", "app:count") == 1
        # The rights to the command are those of the user.
        with pytest.raises(redis.exceptions.NoPermissionError):
            lock.exec("INCR", "count")
        with pytest.raises(redis.exceptions.NoPermissionError):
            lock.exec("DECR", "app:count")
    assert run_once(user, "app:report", lambda: 7, at_most=30, at_least=1) == (True, 7)
