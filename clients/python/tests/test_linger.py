"""`linger`: a hold that ends soon after its connection is lost, and not otherwise."""

from typing import Any

import pytest
import redis
import redis.asyncio

from redis_lock_client import Lock, MultiLock, Semaphore

from .proxy import Proxy
from .server import Server, until

Client = redis.asyncio.Redis

MAKERS: dict[str, Any] = {
    "lock": lambda client, **options: Lock(client, "stock", **options),
    "semaphore": lambda client, **options: Semaphore(client, "stock", 1, **options),
    "multi-lock": lambda client, **options: MultiLock(client, ["stock", "prices"], **options),
}


def test_a_renewal_brings_the_ttl_back(server: Server) -> None:
    with (
        Proxy(server.port) as proxy,
        redis.Redis(port=proxy.port) as client,
        Lock(client, "stock", timeout=1.5, linger=1.2) as lock,
    ):
        fence = lock.fence
        with lock.keep_alive() as lease:
            proxy.cut()
            renewals = server.calls("lock.renew")
            until(lambda: server.calls("lock.renew") >= renewals + 5, "renewals for longer than that")
            assert not lease.lost.is_set()
        assert lock.check() == fence
    assert not server.admin.exists("stock")


def test_it_must_not_be_negative(client: redis.Redis) -> None:
    with pytest.raises(ValueError, match="linger"):
        Lock(client, "stock", linger=-1)
