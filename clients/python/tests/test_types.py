"""A wrong option is named: one that is misspelt by a type checker, and a wrong value by the error."""

import functools
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import redis

import redis_lock_client as package
from redis_lock_client import Lock, LockError
from redis_lock_client import asyncio as tasks

from .server import running, versions

FOLDER = Path(__file__).parent.parent
WRONG = Path("tests/types/wrong.py")


# Without a cache mypy reads all of redis-py first.
@pytest.mark.timeout(180)
@pytest.mark.skipif(find_spec("mypy") is None, reason="no mypy beside this version of the library")
def test_mypy_finds_each_misspelt_option_and_nothing_else():
    command = [sys.executable, "-m", "mypy", "--no-error-summary", "--hide-error-context", str(WRONG)]
    done = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True)
    found = dict(re.findall(rf"^{WRONG}:(\d+): error: (.*)$", done.stdout, re.MULTILINE))
    lines = (FOLDER / WRONG).read_text().splitlines()
    wrong = {str(n): line.split("# wrong: ")[1] for n, line in enumerate(lines, start=1) if "# wrong: " in line}
    assert found.keys() == wrong.keys(), done.stdout + done.stderr
    assert all(f'"{option}"' in found[n] for n, option in wrong.items())


LOCK: list[Any] = [Lock, redis.Redis(), "stock"]
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
