"""What a user of the lock must be allowed, and what comes of it when it is not."""

from pathlib import Path
from typing import Any

import pytest
import redis
import redis.asyncio

from redis_lock_client import Lock, MultiLock, RWLock, Semaphore, run_once

from .package import Package
from .server import cluster_of_one

# The role `worker` of the documents: docs/OPERATIONS.md, "Rights".
WORKER = ("+lock.acquire", "+rwlock.rlock", "+rwlock.wlock", "+lock.release", "+lock.renew")
PAGE = Path(__file__).parents[3] / "docs" / "OPERATIONS.md"
LOGIN: dict[str, Any] = {"username": "worker", "password": "secret"}


def allow(server, *rights):
    """Give the user these rights, and no other."""
    arguments = ["reset", "on", ">secret", "~app:*", "resetchannels", "-@all", *rights]
    server.admin.execute_command("ACL", "SETUSER", "worker", *arguments)


@pytest.fixture
def worker(server):
    allow(server, *WORKER)
    return redis.Redis(port=server.port, **LOGIN)


@pytest.mark.skipif(not PAGE.exists(), reason="this is not the repository")
def test_the_documents_name_these_rights():
    (line,) = (line for line in PAGE.read_text().splitlines() if line.startswith("ACL SETUSER worker "))
    assert set(WORKER) <= set(line.split())


def test_a_worker_can_do_all_that_takes_and_ends_a_hold(server, worker):
    with Lock(worker, "app:stock", timeout=30, linger=20) as lock:
        assert lock.extend(20, replace_ttl=True)
        assert lock.reacquire()
        with lock.keep_alive():
            assert not Lock(worker, "app:stock", blocking_timeout=0.1).acquire()
        assert not Lock(worker, "app:stock", blocking_timeout=0.1).acquire(token="mine")
    pair = RWLock(worker, "app:page", timeout=30)
    with pair.read() as reader, pair.read(thread_local=False) as other:
        # Who gives up an upgrade keeps the share.
        assert not pair.write().acquire(blocking_timeout=0.1, token=reader.local.token)
        assert len(server.tokens("app:page")) == 2
        other.release()
        other.acquire(token=reader.local.token)
        assert pair.write().acquire(token=reader.local.token)
        reader.raise_on_release_error = False
    with Semaphore(worker, "app:permits", 3, timeout=30):
        assert server.mode("app:permits") == "counted"
    assert run_once(worker, "app:report", lambda: 7, at_most=30, at_least=1) == (True, 7)
    # Of an old client, too.
    server.admin.set("app:stock", "old", px=100)
    with Lock(worker, "app:stock", timeout=30):
        pass


def test_each_question_needs_its_right(server, worker):
    with Lock(worker, "app:stock", timeout=30) as lock:
        for question in (lock.locked, lock.owned, lambda: lock.extend(1)):
            with pytest.raises(redis.exceptions.NoPermissionError):
                question()
        allow(server, *WORKER, "+lock.check", "+exists")
        assert lock.owned()
        assert lock.locked()
        # By its own lease, as it may not ask for the ttl.
        assert lock.extend(1)


def test_a_worker_that_is_notified_of_grants(server, worker):
    tasks = Package("notify")
    # Not `ping`: that the server refuses it is an answer, too.
    allow(server, *WORKER, "+subscribe", "&redis-lock:*")
    held = Lock(worker, "app:stock", timeout=30)
    held.acquire()
    with tasks.client(server.port, **LOGIN, socket_timeout=0.4) as client:
        lock = tasks.lock(client, name="app:stock")
        waiting = tasks.begin(lock.acquire)
        server.wait_for_waiters("app:stock", 1)
        # So long that the connection that hears has been asked several times.
        assert not tasks.now(tasks.lock(client, name="app:stock", blocking_timeout=1).acquire())
        held.release()
        assert waiting.result(20)
    allow(server, *WORKER, "+subscribe")
    with tasks.client(server.port, **LOGIN) as client, pytest.raises(redis.exceptions.NoPermissionError):
        tasks.now(tasks.lock(client, name="app:stock").acquire())
    tasks.end()


def test_a_worker_in_a_cluster(server):
    """The client itself asks for the slots and the commands."""
    with cluster_of_one(server.version) as node:
        allow(node, *WORKER, "+cluster|slots", "+command", "+lock.macquire")
        client = redis.RedisCluster(host="127.0.0.1", port=node.port, **LOGIN)
        with Lock(client, "app:stock", timeout=30) as lock:
            assert lock.reacquire()
        with MultiLock(client, ["app:{7}:a", "app:{7}:b"], timeout=30) as both:
            assert both.reacquire()
