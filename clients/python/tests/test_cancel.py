"""Waits that somebody else ends by LOCK.CANCEL."""

import pickle

import pytest
import redis

from redis_lock_client import Lock, LockCancelledError, LockError

from .server import Server
from .worker import KINDS, Worker


@pytest.mark.parametrize("kind", KINDS)
def test_a_cancelled_wait_raises_an_error_of_its_own(server: Server, client: redis.Redis, kind: str) -> None:
    with Lock(client, "stock", timeout=30):
        waiting = [Worker(kind, server.port) for _ in range(2)]
        server.wait_for_waiters("stock", 2)
        assert server.admin.execute_command("LOCK.CANCEL", "stock") == 2
        for worker in waiting:
            with pytest.raises(LockCancelledError, match=r"LOCK\.CANCEL") as told:
                worker.result()
            assert isinstance(told.value, LockError)
            assert isinstance(told.value, redis.exceptions.LockError)
            assert told.value.lock_name == "stock"
            assert type(pickle.loads(pickle.dumps(told.value))) is type(told.value)
        assert server.waiters("stock") == 0
