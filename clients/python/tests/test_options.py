"""An error about an option names that option."""

from collections.abc import Callable
from typing import Any

import pytest
import redis

import redis_lock_client as package
from redis_lock_client import Lock, LockError
from redis_lock_client import asyncio as tasks

from .server import running, versions


@pytest.mark.parametrize("option", ["timeout", "grace", "linger", "at_least"])
@pytest.mark.parametrize("value", ["soon", -1, float("nan")])
def test_a_wrong_time_is_named(option: str, value: object) -> None:
    wrong: Any = {option: value}
    with pytest.raises((TypeError, ValueError), match=f"^{option} must"):
        Lock(redis.Redis(), "stock", **wrong)


@pytest.mark.parametrize(("option", "value"), [("at_most", -1), ("at_least", -1), ("at_least", 31)])
def test_a_wrong_time_of_a_job_is_named(option: str, value: int) -> None:
    wrong: Any = {"at_most": 30, option: value}
    with pytest.raises(ValueError, match=f"^{option} must"):
        package.run_once(redis.Redis(), "report", pytest.fail, **wrong)


@pytest.mark.parametrize("decorate", [package.single_flight, package.idempotent, tasks.single_flight, tasks.idempotent])
def test_an_unknown_option_is_named_before_the_first_call(decorate: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match="'kep'"):
        decorate(redis.Redis(), "page", kep=60)(lambda: b"")


def test_a_ttl_above_the_servers_is_named() -> None:
    with running(versions()[-1], "max-ttl", "2000") as server, redis.Redis(port=server.port) as client:
        with pytest.raises(LockError, match="'timeout is too long: "):
            Lock(client, "stock", timeout=3).acquire()
        with pytest.raises(LockError, match="'at_most is too long: "):
            package.run_once(client, "report", pytest.fail, at_most=3)
        with pytest.raises(LockError, match="ttl is too long: "):
            package.once(client, "page", lambda: b"value")
        with (
            Lock(client, "stock", timeout=1) as lock,
            pytest.raises(LockError, match=r"'the time of extend\(\) is too"),
        ):
            lock.extend(3, replace_ttl=True)
