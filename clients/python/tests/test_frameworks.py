"""The locks in Django, Celery and APScheduler: the real ones, and the examples of each."""

import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import redis

from redis_lock_client import Lock, LockError, TaskResult, runs_once
from redis_lock_client import asyncio as ours

from .server import Server, until, versions

# They are about the frameworks: the newest server is enough.
NEWEST = versions()[-1]

EXAMPLES = Path(__file__).parent.parent / "examples"

# The frameworks stand beside the newest redis-py only.
needs = {
    name: pytest.mark.skipif(find_spec(name) is None, reason=f"no {name} beside this version of the library")
    for name in ("django_redis", "celery", "apscheduler")
}


@pytest.fixture
def server(server: Server) -> Server:
    if server.version != NEWEST:
        pytest.skip("not the newest server")
    return server


def run_example(server: Server, name: str) -> list[str]:
    environment = os.environ | {"REDIS_URL": server.url}
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name)], env=environment, capture_output=True, text=True, timeout=50
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@needs["django_redis"]
def test_the_example_of_django(server: Server) -> None:
    assert run_example(server, "django_lock.py") == [
        "paid 40 times, 40 different answers",
        "the fence is above 0: True",
        "somebody else gets it: False",
    ]


@needs["celery"]
def test_the_example_of_celery(server: Server) -> None:
    assert run_example(server, "celery_once.py") == [
        "monday: [None, None, None, None, 'written for monday']",
        "tuesday: written for tuesday",
        "ran 1 time",
    ]


@needs["apscheduler"]
def test_the_example_of_apscheduler(server: Server) -> None:
    assert run_example(server, "apscheduler_once.py") == ["ran 1 of 3", "nights: 1"]


def seven() -> int:
    return 7


@pytest.fixture
def cache(server: Server) -> Any:
    """A cache of django-redis with the module's locks."""
    from django.conf import settings
    from django.core.cache import caches

    if not settings.configured:
        settings.configure(CACHES={})
    settings.CACHES["default"] = {
        "BACKEND": "django_redis.cache.RedisCache",
        "LOCATION": server.url,
        "KEY_PREFIX": "app",
        "OPTIONS": {
            "CLIENT_CLASS": "redis_lock_client.contrib.django_redis.LockClient",
            "LOCK_OPTIONS": {"timeout": 30, "grace": 2},
        },
    }
    caches.settings = settings.CACHES
    caches.__init__()
    return caches["default"]


@needs["django_redis"]
def test_the_lock_of_a_django_cache_is_one_of_the_module(server: Server, cache: Any) -> None:
    with cache.lock("stock", version=2, linger=9) as lock:
        assert isinstance(lock, Lock)
        assert isinstance(lock, redis.lock.Lock)
        assert server.admin.type("app:2:stock") == "redislock"
        assert (lock.timeout, lock.grace) == (30, 2)
        assert 29_000 < server.admin.pttl("app:2:stock") <= 30_000
        assert not cache.lock("stock", version=2, timeout=5, blocking=False).acquire()
        # One of another version is another lock.
        assert cache.lock("stock", timeout=5, blocking=False).acquire()
    with pytest.raises(TypeError, match="tiemout"):
        cache.lock("stock", tiemout=5)
    # As django-redis' own takes them.
    lock = cache.lock("stock", None, 5, 0.2, False)
    assert (lock.timeout, lock.sleep, lock.blocking, lock.grace) == (5, 0.2, False, 2)


@needs["django_redis"]
def test_the_lock_of_a_sharded_cache_is_where_its_key_is(server: Server, cache: Any) -> None:
    from django_redis.client import ShardClient

    from redis_lock_client.contrib.django_redis import LockMixin

    mine: Any = type("Mine", (LockMixin, ShardClient), {})
    shards = mine([f"{server.url}/{number}" for number in range(2)], {"OPTIONS": {}}, cache)
    for number in range(20):
        with shards.lock(f"stock{number}", timeout=30):
            assert shards.has_key(f"stock{number}")


@needs["django_redis"]
def test_a_decorated_function_holds_the_lock_of_its_arguments(server: Server, cache: Any) -> None:
    from redis_lock_client.contrib.django_redis import locked

    @locked("invoice:{number}", timeout=30, blocking=False)
    def pay(number: int, currency: str = "eur") -> str:
        """Pay it."""
        assert server.mode(f"app:1:invoice:{number}") == "exclusive"
        with pytest.raises(LockError):
            pay_in_vain(number)
        return f"{number} {currency}"

    pay_in_vain = locked("invoice:{number}", timeout=30, blocking=False)(lambda number: pytest.fail("it has run"))
    assert pay(7) == "7 eur"
    assert pay.__doc__ == "Pay it."
    assert not server.admin.exists("app:1:invoice:7")

    async def view() -> None: ...

    def stream() -> Iterator[int]:
        yield pytest.fail("it has run")

    for later in (view, stream):
        with pytest.raises(TypeError, match="async"):
            locked("invoice")(later)
    returns_later: Any = lambda: view()  # noqa: E731
    with pytest.raises(TypeError, match="has returned an awaitable"):
        locked("invoice", timeout=30)(returns_later)()


@needs["celery"]
def test_a_task_of_celery_says_what_it_lacks() -> None:
    from celery import Celery

    from redis_lock_client.contrib.celery import Once

    app = Celery("example", broker="memory://")
    task = app.task(seven, base=Once, name="report")
    with pytest.raises(TypeError, match="the task report needs lock_client and at_most"):
        task()


@needs["celery"]
def test_a_task_of_celery_that_is_retried_runs_again(server: Server, client: redis.Redis) -> None:
    from celery import Celery

    from redis_lock_client.contrib.celery import Once

    tries = iter([ConnectionError("trouble"), None])

    def work() -> int:
        if trouble := next(tries):
            raise trouble
        return 7

    app = Celery("example", broker="memory://")
    options = {"lock_client": client, "at_most": 30, "at_least": 20, "autoretry_for": (ConnectionError,)}
    task = app.task(work, base=Once, name="report", **options)
    assert task.apply().get() == 7
    assert task.apply().get() is None
    assert server.mode("once:report") == "exclusive"


@needs["celery"]
def test_a_task_of_celery_that_rejects_its_message_leaves_the_lock_free_if_it_is_requeued(
    server: Server, client: redis.Redis
) -> None:
    from celery import Celery
    from celery.exceptions import Reject

    from redis_lock_client.contrib.celery import Once

    tries = iter([Reject("trouble", requeue=True), Reject("trouble")])

    def work() -> None:
        raise next(tries)

    app = Celery("example", broker="memory://")
    task = app.task(work, base=Once, name="report", lock_client=client, at_most=30, at_least=20)
    for mode in (None, "exclusive"):
        with pytest.raises(Reject):
            task()
        assert server.mode("once:report") == mode


@needs["celery"]
def test_a_task_of_celery_may_linger(server: Server, client: redis.Redis) -> None:
    from celery import Celery

    from redis_lock_client.contrib.celery import Once

    def work() -> None:
        client.connection_pool.disconnect()
        until(lambda: not server.admin.exists("once:report"), "the end of the hold")

    app = Celery("example", broker="memory://")
    app.task(work, base=Once, name="report", lock_client=client, at_most=60, linger=0)()


async def test_a_decorated_job_runs_once_with_threads_and_tasks(server: Server, client: redis.Redis) -> None:
    @runs_once(client, "report", at_most=30, at_least=20)
    def job(number: int) -> int:
        """Count."""
        return number + 1

    assert (job(6), job(6)) == (TaskResult(True, 7), TaskResult(False, None))
    assert (job.__name__, job.__doc__) == ("job", "Count.")
    async with redis.asyncio.Redis.from_url(server.url) as async_client:

        @ours.runs_once(async_client, "other report", at_most=30, at_least=20)
        async def async_job(number: int) -> int:
            return number + 1

        assert (await async_job(6), await async_job(6)) == (TaskResult(True, 7), TaskResult(False, None))
