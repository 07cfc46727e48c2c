"""The programs of docs/RECIPES.md, each on a real server."""

import re
import sqlite3
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import redis

from redis_lock_client import FingerprintError, Lock, LockNotOwnedError, once

from .server import PATIENCE, Server, until

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


# The programs of the page, which call what stands under these names.
def read(**names: Any) -> dict[str, Any]:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) == 18
    for block in blocks:
        exec(block, names)
    return names


@pytest.fixture
def programs(calls: Calls) -> dict[str, Any]:
    return read(
        make_backup=calls.does("backup"),
        call_api=calls.does("api", b"ok"),
        render=calls.does("render", b"<html>"),
        ask_the_bank=calls.does("bank", b"1.1"),
        ask_the_station=calls.does("station", b"sun"),
        save=calls.does("save"),
        fetch_token=calls.does("token", b"secret"),
        pay=calls.does("pay", {"paid": 5}),
        handle=calls.does("handle"),
        make_report=calls.does("report", b"pdf"),
        send_mail=calls.does("mail"),
        load_orders=calls.does("orders", b"o"),
        load_stock=calls.does("stock", b"s"),
    )


def test_a_cron_job_on_one_machine(client: redis.Redis, programs: dict[str, Any], calls: Calls) -> None:
    assert [programs["nightly_backup"](client) for _ in range(3)] == [True, False, False]
    assert calls.count["backup"] == 1


def test_a_migration_at_deploy(client: redis.Redis) -> None:
    pending, applied = [1, 2, 3], []

    def apply(step: int) -> None:
        applied.append(step)
        pending.remove(step)

    migrate = read(pending_steps=lambda: list(pending), apply=apply)["migrate"]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(migrate, [client] * 4))
    assert applied == [1, 2, 3]


class Brief(Lock):
    """A lock whose loss is seen soon."""

    kept: Any

    def __init__(self, redis: Any, name: str, **options: Any) -> None:
        super().__init__(redis, name, **options | {"timeout": 0.3})

    def keep_alive(self, on_lost: Any = None) -> Any:
        Brief.kept = super().keep_alive(on_lost)
        return Brief.kept


def test_a_migration_that_loses_its_lock(client: redis.Redis) -> None:
    applied = []

    def apply(step: int) -> None:
        applied.append(step)
        client.delete("migration")
        until(lambda: Brief.kept.lost.is_set(), "the loss")

    programs = read(pending_steps=lambda: [1, 2], apply=apply)
    programs["Lock"] = Brief
    with pytest.raises(LockNotOwnedError):
        programs["migrate"](client)
    assert applied == [1]


def test_a_leader_that_stops_hands_over(client: redis.Redis, server: Server) -> None:
    rounds: Counter[int] = Counter()
    # Two processes have two events.
    first, second = (read(do_a_round=lambda fence: rounds.update([fence])) for _ in range(2))
    with ThreadPoolExecutor(2) as pool:
        try:
            ends = [pool.submit(first["lead"], client)]
            until(lambda: rounds, "a leader")
            ends += [pool.submit(second["lead"], client)]
            server.wait_for_waiters("leader", 1)
            first["stopping"].set()
            until(lambda: len(rounds) == 2, "another leader")
        finally:
            first["stopping"].set()
            second["stopping"].set()
    assert [end.result() for end in ends] == [None, None]
    assert not client.exists("leader")


def test_a_leader_that_is_deposed_steps_down(client: redis.Redis) -> None:
    leaders: list[int] = []

    def do_a_round(fence: int) -> None:
        leaders.append(fence)
        if len(leaders) == 2:
            process["stopping"].set()
            return
        client.delete("leader")
        until(lambda: Brief.kept.lost.is_set(), "the loss")

    process = read(do_a_round=do_a_round)
    process["Lock"] = Brief
    process["lead"](client)
    assert leaders[0] < leaders[1]


def test_a_worker_pool(client: redis.Redis, server: Server) -> None:
    # While four work, all others wait.
    waiting = iter([4, 0])
    four = threading.Barrier(4, lambda: server.wait_for_waiters("converters", next(waiting)))
    convert = read(run_converter=lambda _: four.wait(PATIENCE))["convert"]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda video: convert(client, video), range(8)))
    assert list(waiting) == []


def test_one_worker_per_file(client: redis.Redis) -> None:
    files, done, processed = list(range(20)), set[int](), Counter[int]()
    both = threading.Barrier(2)

    def process(file: int) -> None:
        processed.update([file])
        done.add(file)

    def worker(files: list[int]) -> None:
        both.wait(PATIENCE)
        work_through(client, files)

    work_through = read(process=process, is_done=lambda file: file in done)["work_through"]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(worker, [files, files]))
    assert processed == dict.fromkeys(files, 1)
    assert not client.keys("file:*")


def test_a_transfer(client: redis.Redis) -> None:
    balance = {"anna": 100, "bert": 100}

    def move(source: str, target: str, amount: int, fence: int) -> None:
        assert fence
        assert client.exists("account:anna", "account:bert") == 2
        seen = dict(balance)
        client.ping()  # Another thread has its turn.
        balance[source], balance[target] = seen[source] - amount, seen[target] + amount

    transfer = read(move=move)["transfer"]
    with ThreadPoolExecutor(8) as pool:
        ways = [("anna", "bert", 3), ("bert", "anna", 1)] * 10
        list(pool.map(lambda way: transfer(client, *way), ways))
    assert balance == {"anna": 80, "bert": 120}


@pytest.fixture
def stock() -> sqlite3.Connection:
    db = sqlite3.connect(":memory:")
    db.execute("CREATE TABLE stock (id, n, fence BIGINT NOT NULL DEFAULT 0)")
    db.execute("INSERT INTO stock (id, n) VALUES ('pen', 5)")
    return db


def test_a_guarded_write(client: redis.Redis, stock: sqlite3.Connection) -> None:
    read(count_after_sale=lambda n: n - 1)["sell"](client, stock, "pen")
    assert stock.execute("SELECT n FROM stock").fetchone() == (4,)


@pytest.mark.parametrize("is_before_the_read", [True, False])
def test_a_late_owner_writes_nothing(client: redis.Redis, stock: sqlite3.Connection, is_before_the_read: bool) -> None:
    def next_owner() -> None:
        with stock:
            stock.execute("UPDATE stock SET n = 0, fence = 9e15")

    def count_after_sale(n: int) -> int:
        if not is_before_the_read:
            next_owner()
        return n - 1

    if is_before_the_read:
        next_owner()
    with pytest.raises(RuntimeError, match="a newer owner"):
        read(count_after_sale=count_after_sale)["sell"](client, stock, "pen")
    assert stock.execute("SELECT n FROM stock").fetchone() == (0,)


def test_a_rate_limit(client: redis.Redis, server: Server, programs: dict[str, Any], calls: Calls) -> None:
    with ThreadPoolExecutor(1) as pool:
        for _ in range(10):
            programs["limited_call"](client, "bob")
        last = pool.submit(programs["limited_call"], client, "bob")
        server.wait_for_waiters("rate:bob", 1)
        assert calls.count["api"] == 10
        assert last.result(PATIENCE) == b"ok"


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
