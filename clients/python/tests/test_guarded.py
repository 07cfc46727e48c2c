"""Commands that run only while the lock is held, and the question whether it is."""

import pytest
import redis
import redis.asyncio

from redis_lock_client import Lock, LockError, NotSupportedError
from redis_lock_client import asyncio as ours

from .proxy import Proxy
from .server import Server

Client = redis.asyncio.Redis


def test_the_reply_is_that_of_the_command(server: Server, protocol: int) -> None:
    with redis.Redis(port=server.port, protocol=protocol) as client, Lock(client, "stock", timeout=30) as lock:
        assert lock.exec("SET", "count", 7) == b"OK"
        assert lock.exec("INCRBY", "count", 3) == 10
        assert lock.exec("GET", "none") is None
        assert lock.exec("LRANGE", "list", 0, -1) == []


def test_a_lock_that_is_not_held_runs_nothing(server: Server, client: redis.Redis) -> None:
    lock = Lock(client, "stock", timeout=30)
    with pytest.raises(LockError, match="unlocked"):
        lock.exec("SET", "count", 7)
    assert lock.check() is None
    assert not server.admin.exists("count")


def test_an_error_of_the_command_is_its_own(server: Server, client: redis.Redis) -> None:
    with Lock(client, "stock", timeout=30) as lock:
        server.admin.rpush("list", 1)
        with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
            lock.exec("INCR", "list")
        with pytest.raises(redis.ResponseError, match="unknown command 'NONE'") as caught:
            lock.exec("NONE", "list")
        assert not isinstance(caught.value, NotSupportedError)
        assert lock.owned()


@pytest.mark.parametrize("command", ["LOCK.EXEC", "LOCK.CHECK"])
async def test_a_server_without_it_is_told(shared_server: Server, command: str) -> None:
    shared_server.admin.flushall()
    with Proxy(shared_server.port) as proxy:
        proxy.refuse_command(command.encode())
        told = f"does not know {command}$"
        with (
            redis.Redis(port=proxy.port) as client,
            Lock(client, "stock", timeout=30) as lock,
            pytest.raises(NotSupportedError, match=told),
        ):
            lock.exec("SET", "count", 7) if command == "LOCK.EXEC" else lock.check()
        async with Client(port=proxy.port) as client, ours.Lock(client, "stock", timeout=30) as held:
            with pytest.raises(NotSupportedError, match=told):
                await (held.exec("SET", "count", 7) if command == "LOCK.EXEC" else held.check())
    assert not shared_server.admin.exists("count")
