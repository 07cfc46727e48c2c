"""What a user of the lock must be allowed, and what comes of it when it is not."""

import pytest
import redis

from redis_lock_client import Lock

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
