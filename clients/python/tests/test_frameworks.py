"""Jobs that run once, and the locks in Django, Celery and APScheduler: the real ones, and the examples of each."""

import ast
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import redis.asyncio

from redis_lock_client import Lock, LockError, TaskResult, run_once, runs_once

from .server import until

EXAMPLES = Path(__file__).parent.parent / "examples"


async def later(): ...


def generates():
    yield pytest.fail("it has run")


async def generates_later():
    yield pytest.fail("it has run")


USES: list[Callable[..., object]] = [
    lambda client, job: run_once(client, "report", job, at_most=30),
    lambda client, job: runs_once(client, "report", at_most=30)(job)(),
]


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("job", [later, generates, generates_later, partial(later), lambda: later()])
def test_a_job_that_would_run_after_the_release_is_refused(client, use, job):
    with pytest.raises(TypeError, match=r"locks in redis_lock_client\.asyncio"):
        use(client, job)
    assert not client.exists("report")


def test_a_job_that_took_too_long_is_told(client, caplog):
    def job():
        until(lambda: not client.exists("report"), "the end of the hold")
        return "late"

    with caplog.at_level(logging.WARNING):
        assert run_once(client, "report", job, at_most=0.1, at_least=0.1) == TaskResult(True, "late")
    assert "no longer owned" in caplog.text


def test_a_decorated_job_runs_once_also_if_it_is_interrupted(server, package):
    may_end, begun = [False], []

    def job(number):
        """Count."""
        begun.append(number)
        until(lambda: may_end[0], "the end")
        return number + 1

    with package.client(server.port) as client:
        runs = package.locks.runs_once(client, "report", at_most=30, at_least=10)(package.later(job))
        assert (runs.__name__, runs.__doc__) == ("job", "Count.")
        package.interrupt(runs, lambda: begun, number=6)
        may_end[0] = True
        assert 0 < server.admin.pttl("report") <= 10_000
        assert package.now(runs(6)) == TaskResult(False, None)
        server.admin.delete("report")
        assert (package.now(runs(6)), package.now(runs(6))) == (TaskResult(True, 7), TaskResult(False, None))


# The frameworks stand beside the newest redis-py only.
@pytest.mark.parametrize("framework", ["django_redis", "celery", "apscheduler"])
def test_the_example_of(server, framework):
    pytest.importorskip(framework)
    (example,) = EXAMPLES.glob(f"{framework[:6]}*.py")
    environment = os.environ | {"REDIS_URL": server.url}
    done = subprocess.run([sys.executable, example], env=environment, capture_output=True, text=True, timeout=50)
    _, _, told = (ast.get_docstring(ast.parse(example.read_text())) or "").partition("It prints\n\n")
    assert done.stdout == f"{told}\n", done.stderr


@pytest.fixture
def cache(server):
    """A cache of django-redis with the module's locks."""
    pytest.importorskip("django_redis")
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


def test_the_lock_of_a_django_cache_is_one_of_the_module(server, cache):
    with cache.lock("stock", version=2, linger=9) as lock:
        assert isinstance(lock, Lock)
        assert server.admin.type("app:2:stock") == "redislock"
        assert (lock.timeout, lock.grace) == (30, 2)
        assert not cache.lock("stock", version=2, timeout=5, blocking=False).acquire()
        # One of another version is another lock.
        assert cache.lock("stock", timeout=5, blocking=False).acquire()
    with pytest.raises(TypeError, match="tiemout"):
        cache.lock("stock", tiemout=5)
    # As django-redis' own takes them.
    lock = cache.lock("stock", None, 5, 0.2, False)
    assert (lock.timeout, lock.sleep, lock.blocking, lock.grace) == (5, 0.2, False, 2)


def test_the_lock_of_a_sharded_cache_is_where_its_key_is(server, cache):
    from django_redis.client import ShardClient

    from redis_lock_client.contrib.django_redis import LockMixin

    mine: Any = type("Mine", (LockMixin, ShardClient), {})
    shards = mine([f"{server.url}/{number}" for number in range(2)], {"OPTIONS": {}}, cache)
    for number in range(20):
        with shards.lock(f"stock{number}", timeout=30):
            assert shards.has_key(f"stock{number}")


def test_a_decorated_function_holds_the_lock_of_its_arguments(server, cache):
    from redis_lock_client.contrib.django_redis import locked

    @locked("invoice:{number}", timeout=30, blocking=False)
    def pay(number, currency="eur"):
        """Pay it."""
        assert server.mode(f"app:1:invoice:{number}") == "exclusive"
        with pytest.raises(LockError):
            pay_in_vain(number)
        return f"{number} {currency}"

    pay_in_vain = locked("invoice:{number}", timeout=30, blocking=False)(lambda number: pytest.fail("it has run"))
    assert pay(7) == "7 eur"
    assert pay.__doc__ == "Pay it."
    assert not server.admin.exists("app:1:invoice:7")
    for function in (later, generates, lambda: later()):
        with pytest.raises(TypeError, match="async"):
            locked("invoice", timeout=30)(function)()
    # Where it is decorated.
    with pytest.raises(TypeError, match="async"):
        locked("invoice", timeout=30)(later)


@pytest.fixture
def task_of(client):
    """Makes a task of Celery that runs once."""
    pytest.importorskip("celery")
    from celery import Celery

    from redis_lock_client.contrib.celery import Once

    def task_of(work, **options):
        default: dict[str, Any] = {"lock_client": client, "at_most": 30, "at_least": 20}
        return Celery("example", broker="memory://").task(work, base=Once, name="report", **default | options)

    return task_of


def test_a_task_of_celery_that_is_to_be_tried_again_leaves_the_lock_free(server, task_of):
    from celery.exceptions import Reject

    results = iter([ConnectionError("trouble"), 7, Reject("trouble", requeue=True), Reject("trouble")])

    def work():
        result = next(results)
        if isinstance(result, Exception):
            raise result
        return result

    task = task_of(work, autoretry_for=(ConnectionError,))
    assert task.apply().get() == 7
    assert task.apply().get() is None
    server.admin.delete("once:report")
    for mode in (None, "exclusive"):
        with pytest.raises(Reject):
            task()
        assert server.mode("once:report") == mode


def test_a_task_of_celery_may_linger_and_says_what_it_lacks(client, task_of):
    def work():
        client.connection_pool.disconnect()
        until(lambda: not client.exists("once:report"), "the end of the hold")

    task_of(work, at_least=0, linger=0)()
    with pytest.raises(TypeError, match="the task report needs lock_client and at_most"):
        task_of(work, at_most=None)()
    with pytest.raises(TypeError, match="no client for asyncio"):
        task_of(work, lock_client=redis.asyncio.Redis())()
