"""What a user of the lock must be allowed, and what comes of it when it is not."""

import threading
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.asyncio

from redis_lock_client import Lock, MultiLock, RWLock, Semaphore, run_once
from redis_lock_client import asyncio as ours

from .server import Server, running, until

# The role `worker` of the documents: docs/OPERATIONS.md, "Rights".
WORKER = ("+lock.acquire", "+rwlock.rlock", "+rwlock.wlock", "+lock.release", "+lock.renew")


@pytest.fixture
def worker(server: Server) -> redis.Redis:
    """A client with the rights of the role `worker`, and no other."""
    arguments = ["on", ">secret", "~app:*", "resetchannels", "-@all", *WORKER]
    server.admin.execute_command("ACL", "SETUSER", "worker", "reset", *arguments)
    return redis.Redis(port=server.port, username="worker", password="secret")


def test_the_documents_name_these_rights() -> None:
    page = Path(__file__).parent.parent.parent.parent / "docs" / "OPERATIONS.md"
    if not page.exists():
        pytest.skip("this is not the repository")
    (line,) = (line for line in page.read_text().splitlines() if line.startswith("ACL SETUSER worker "))
    assert set(WORKER) <= set(line.split())


def test_a_worker_can_do_all_that_takes_and_ends_a_hold(server: Server, worker: redis.Redis) -> None:
    with Lock(worker, "app:stock", timeout=30, linger=20) as lock:
        assert lock.extend(20, replace_ttl=True)
        assert lock.reacquire()
        with lock.keep_alive():
            assert not Lock(worker, "app:stock", blocking_timeout=0.1).acquire()
        assert not Lock(worker, "app:stock", blocking_timeout=0.1).acquire(token="mine")
    pair = RWLock(worker, "app:page", timeout=30)
    with pair.read() as reader:
        # Converted, with a token that was passed.
        writer = pair.write()
        assert writer.acquire(token=reader.local.token)
        reader.local.token = None
        writer.release()
        reader.acquire()
    with Semaphore(worker, "app:permits", 3, timeout=30):
        assert server.mode("app:permits") == "counted"
    assert run_once(worker, "app:report", lambda: 7, at_most=30, at_least=1) == (True, 7)
    # Of an old client, too.
    server.admin.set("app:stock", "old", px=100)
    with Lock(worker, "app:stock", timeout=30):
        pass


def test_a_worker_that_gives_up_an_upgrade_keeps_its_share(server: Server, worker: redis.Redis) -> None:
    pair = RWLock(worker, "app:page", timeout=30)
    with pair.read() as reader, pair.read(thread_local=False):
        assert not pair.write().acquire(blocking_timeout=0.1, token=reader.local.token)
        assert len(server.tokens("app:page")) == 2


def test_each_question_needs_its_right(server: Server, worker: redis.Redis) -> None:
    with Lock(worker, "app:stock", timeout=30) as lock:
        for question in (lock.locked, lock.owned, lambda: lock.extend(1)):
            with pytest.raises(redis.exceptions.NoPermissionError):
                question()
        server.admin.execute_command("ACL", "SETUSER", "worker", "+lock.check", "+exists")
        assert lock.owned()
        assert lock.locked()
        # By its own lease, as it may not ask for the ttl.
        assert lock.extend(1)


async def test_a_worker_that_is_notified_of_grants(server: Server, worker: redis.Redis) -> None:
    # Not `ping`: that the server refuses it is an answer, too.
    server.admin.execute_command("ACL", "SETUSER", "worker", "+subscribe", "&redis-lock:*")
    settings: Any = {"port": server.port, "username": "worker", "password": "secret", "socket_timeout": 0.4}
    async with redis.asyncio.Redis(**settings) as client:
        lock = ours.Lock(client, "app:stock", timeout=30, wait="notify")
        held = Lock(worker, "app:stock", timeout=30, thread_local=False)
        held.acquire()
        threading.Timer(1, held.release).start()
        async with lock:
            assert lock.fence
    server.admin.execute_command("ACL", "SETUSER", "worker", "resetchannels")
    async with redis.asyncio.Redis(**settings) as client:
        with pytest.raises(redis.exceptions.NoPermissionError):
            await ours.Lock(client, "app:stock", timeout=30, wait="notify").acquire()


def test_a_worker_in_a_cluster(server: Server) -> None:
    """The client itself asks for the slots and the commands."""
    with running(server.version, "--cluster-enabled", "yes") as node:
        node.admin.execute_command("CLUSTER", "ADDSLOTS", *range(16384))
        until(lambda: node.admin.cluster("info")["cluster_state"] == "ok", "a cluster")
        rights = (*WORKER, "+cluster|slots", "+command", "+lock.macquire")
        node.admin.execute_command("ACL", "SETUSER", "worker", "reset", "on", ">secret", "~app:*", "-@all", *rights)
        client = redis.RedisCluster(host="127.0.0.1", port=node.port, username="worker", password="secret")
        with Lock(client, "app:stock", timeout=30) as lock:
            assert lock.reacquire()
        with MultiLock(client, ["app:{7}:a", "app:{7}:b"], timeout=30) as both:
            assert both.reacquire()
