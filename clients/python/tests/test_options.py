"""An error about an option names that option. What mypy finds is in `wrong_options.py`."""

import functools
from typing import Any

import pytest
import redis

import redis_lock_client as package
from redis_lock_client import asyncio as tasks

from .server import running, versions

LOCK: list[Any] = [package.Lock, redis.Redis(), "stock"]
JOB: list[Any] = [functools.partial(package.run_once, at_most=30), redis.Redis(), "report", pytest.fail]
MAKE: list[Any] = [package.once, redis.Redis(), "page", pytest.fail]
WRONG_TIMES = [
    *((LOCK, option, value) for option in ("timeout", "grace", "linger", "at_least") for value in ("soon", -1, 1e999)),
    *((LOCK, "timeout", value) for value in (-0.1, 0.001, 0.003, float("nan"))),
    *((JOB, option, value) for option, value in [("at_most", -1), ("at_least", -1), ("at_least", 31)]),
    *((MAKE, option, value) for option, value in [("keep", 0), ("ttl", 0), ("ttl", 0.001), ("early", -1)]),
]


@pytest.mark.parametrize(("call", "option", "value"), WRONG_TIMES)
def test_a_wrong_time_is_named(call, option, value):
    use, *arguments = call
    with pytest.raises((TypeError, ValueError), match=f"^{option} must"):
        use(*arguments, **{option: value})


@pytest.mark.parametrize("decorate", [package.single_flight, package.idempotent, tasks.single_flight, tasks.idempotent])
def test_an_unknown_option_is_named_before_the_first_call(decorate):
    with pytest.raises(TypeError, match="'kep'"):
        decorate(redis.Redis(), "page", kep=60)(lambda: b"")


def test_a_ttl_above_the_servers_is_named():
    with running(versions()[-1], "max-ttl", "2000") as server, redis.Redis(port=server.port) as client:
        with pytest.raises(package.LockError, match=r"^timeout is too long: "):
            package.Lock(client, "stock", timeout=3).acquire()
        with pytest.raises(package.LockError, match=r"^at_most is too long: "):
            package.run_once(client, "report", pytest.fail, at_most=3)
        with pytest.raises(package.LockError, match="ttl is too long: "):
            package.once(client, "page", lambda: b"value")
        with (
            package.Lock(client, "stock", timeout=1) as lock,
            pytest.raises(package.LockError, match=r"^the time of extend\(\) is too"),
        ):
            lock.extend(3, replace_ttl=True)
