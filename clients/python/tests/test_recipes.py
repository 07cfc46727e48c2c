"""The programs of docs/RECIPES.md, each on a real server."""

import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import redis

from redis_lock_client import FingerprintError, Lock, once

PAGE = Path(__file__).parents[3] / "docs" / "RECIPES.md"


class Calls:
    """What the programs call, and how often."""

    def __init__(self) -> None:
        self.count: Counter[str] = Counter()

    def does(self, name: str, value: Any = None) -> Any:
        def call(*_: Any) -> Any:
            self.count[name] += 1
            if isinstance(value, Exception):
                raise value
            return value

        return call


@pytest.fixture
def calls() -> Calls:
    return Calls()


@pytest.fixture
def programs(calls: Calls) -> dict[str, Any]:
    names: dict[str, Any] = {
        "render": calls.does("render", b"<html>"),
        "ask_the_bank": calls.does("bank", b"1.1"),
        "ask_the_station": calls.does("station", b"sun"),
        "save": calls.does("save"),
        "fetch_token": calls.does("token", b"secret"),
        "pay": calls.does("pay", {"paid": 5}),
        "handle": calls.does("handle"),
        "make_report": calls.does("report", b"pdf"),
        "send_mail": calls.does("mail"),
        "load_orders": calls.does("orders", b"o"),
        "load_stock": calls.does("stock", b"s"),
    }
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) == 10
    for block in blocks:
        exec(block, names)
    return names


def test_a_cold_page(client: redis.Redis, programs: dict[str, Any], calls: Calls) -> None:
    with ThreadPoolExecutor(8) as pool:
        pages = list(pool.map(lambda _: programs["page"](client, 7), range(8)))
    assert pages == [b"<html>"] * 8
    assert calls.count["render"] == 1


@pytest.mark.parametrize(("name", "key", "call"), [("rates", "rates", "bank"), ("api_token", "api:token", "token")])
def test_refreshed_ahead(
    client: redis.Redis, programs: dict[str, Any], calls: Calls, name: str, key: str, call: str
) -> None:
    first = programs[name](client)
    assert programs[name](client) == first
    assert calls.count[call] == 1
    client.pexpire(key, 20_000)
    assert programs[name](client) == first
    assert calls.count[call] == 2
    assert client.pttl(key) > 100_000


def test_an_old_value_is_better_than_none(client: redis.Redis, programs: dict[str, Any], calls: Calls) -> None:
    assert programs["weather"](client) == b"sun"
    client.pexpire("weather", 50_000)
    programs["ask_the_station"] = calls.does("station", OSError("away"))
    assert programs["weather"](client) == b"sun"
    assert calls.count["station"] == 2
    assert client.get("weather") == b"sun"


def test_no_stale_value_after_a_change(client: redis.Redis, programs: dict[str, Any]) -> None:
    def old_price() -> bytes:
        # Somebody changes it while this one is made.
        programs["change_price"](client, "pen", 2)
        return b"1"

    assert once(client, "price:pen", old_price) == b"1"
    assert client.get("price:pen") is None
    assert once(client, "price:pen", lambda: b"2") == b"2"


def test_a_payment(client: redis.Redis, programs: dict[str, Any], calls: Calls) -> None:
    charge = programs["payments"](client)
    assert charge("k", 5) == charge("k", 5) == {"paid": 5}
    assert calls.count["pay"] == 1
    with pytest.raises(FingerprintError):
        charge("k", 6)


def test_what_happens_once(client: redis.Redis, programs: dict[str, Any], calls: Calls) -> None:
    for _ in range(3):
        assert programs["on_webhook"](client, {"id": 1}) == b"done"
        assert programs["nightly"](client, "2026-11-28") == b"pdf"
        assert programs["warn"](client, "bob") == b"sent"
        assert programs["report"](client) == b"os"
    assert calls.count == {"handle": 1, "report": 1, "mail": 1, "orders": 1, "stock": 1}
    with Lock(client, "{report:2026-11-29}:once", timeout=30):
        assert programs["nightly"](client, "2026-11-29") is None
