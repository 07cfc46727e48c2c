"""The fixture of the README and a test that uses it, and its other code that can run."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from redis_lock_client import Lock

README = Path(__file__).parent.parent / "README.md"
PROGRAM = """
import os, socket, subprocess
import pytest, redis
from redis.backoff import ConstantBackoff
from redis.retry import Retry
"""


@pytest.fixture
def from_readme(tmp_path: Path, shared_server: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[redis.Redis]:
    monkeypatch.setenv("REDIS_SERVER", shared_server.program)
    (fixture,) = re.findall(r"```python\n@pytest.fixture\n(.*?)```", README.read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(PROGRAM + fixture, names)
    yield from names["client"](tmp_path)


def test_a_test_of_an_application(from_readme: redis.Redis) -> None:
    with Lock(from_readme, "stock", timeout=30) as lock:
        assert lock.check() == lock.fence
        assert not Lock(from_readme, "stock", blocking=False).acquire()


def test_a_value_that_one_makes(client: redis.Redis) -> None:
    (block,) = re.findall(r"```python\n(from redis_lock_client import once.*?)```", README.read_text(), re.DOTALL)
    asked: list[str] = []

    def ask_the_shop(item: str) -> dict[str, str]:
        asked.append(item)
        return {"item": item}

    names: dict[str, Any] = {"client": client, "json": json, "render": str, "ask_the_shop": ask_the_shop}
    exec(block, names)
    assert names["html"] == client.get("page:7") == b"7"
    assert names["price"]("pen") == names["price"]("pen") == {"item": "pen"}
    assert asked == ["pen"]
