"""The first program of the project's README, and what can run of the client's: its fixture, and a test that uses it."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from redis_lock_client import Lock, LockNotOwnedError

from .server import Server, until

README = Path(__file__).parent.parent / "README.md"
FIRST = Path(__file__).parents[3] / "README.md"
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


def first_program(server: Server, work: Callable[[], object], timeout: int = 10) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", FIRST.read_text(), re.DOTALL)
    for words, others in [
        ("port=6379", f"port={server.port}"),
        ("time.sleep(1)", "work()"),
        ("timeout=10", f"timeout={timeout}"),
    ]:
        assert words in program
        program = program.replace(words, others)
    exec(program, {"work": work})


def test_the_first_program(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    held: list[object] = []
    first_program(server, lambda: held.append(server.admin.exists("report")))
    assert held == [1] * 8
    assert re.fullmatch(r"has the lock, fence \d{16}\ndone, the lock is released\n", capsys.readouterr().out)
    assert not server.admin.exists("report")


def test_the_first_program_releases_when_the_work_fails(server: Server) -> None:
    def work() -> None:
        raise OSError("no route")

    with pytest.raises(OSError, match="no route"):
        first_program(server, work)
    assert not server.admin.exists("report")


def test_the_first_program_stops_when_the_lock_is_lost(server: Server) -> None:
    worked = []

    def work() -> None:
        worked.append(server.admin.delete("report"))
        renewals = server.calls("lock.renew")
        until(lambda: server.calls("lock.renew") > renewals, "a renewal")

    # So that a renewal comes soon.
    with pytest.raises(LockNotOwnedError):
        first_program(server, work, timeout=1)
    assert worked == [1]
