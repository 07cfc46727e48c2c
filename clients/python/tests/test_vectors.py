"""Plays the scenarios of clients/vectors, which all the adapters have in common."""

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import redis

from redis_lock_client import (
    KeepAlive,
    Lock,
    LockCancelledError,
    LockError,
    LockNotOwnedError,
    ModuleMissingError,
    MultiLock,
    ReadLock,
    Semaphore,
    WriteLock,
    run_once,
)

from .server import Server, running, until, versions

FILE = Path(__file__).parents[2] / "vectors" / "scenarios.txt"
TAKING = ("lock", "read", "write", "permit", "multi")
KINDS: dict[str, Any] = {"lock": Lock, "read": ReadLock, "write": WriteLock}


def scenarios() -> list[Any]:
    found: list[tuple[str, list[list[str]]]] = []
    for line in FILE.read_text().splitlines():
        words = line.partition("#")[0].split()
        if words[:1] == ["scenario"]:
            found.append((line.removeprefix("scenario "), []))
        elif words:
            found[-1][1].append(words)
    return [pytest.param(name, steps, id=name) for name, steps in found]


@pytest.fixture(scope="module", params=versions())
def places(request: pytest.FixtureRequest) -> Iterator[dict[str, Server]]:
    with (
        running(request.param) as server,
        running(request.param, with_module=False) as plain,
        running(request.param, "max-ttl", "2000") as bounded,
    ):
        yield {"": server, "plain": plain, "strict": plain, "bounded": bounded}


class Actor:
    """A program with a client of its own, and what it holds."""

    def __init__(self, server: Server, fallback: bool) -> None:
        self.client = redis.Redis(port=server.port)
        self.fallback = fallback
        self.lock: Lock
        self.kept: KeepAlive | None = None
        self.pending: Future[str]

    def do(self, verb: str, *words: str) -> str:
        try:
            done: str = self.take(verb, *words) if verb in TAKING else getattr(self, verb)(*words)
            return done
        except ModuleMissingError:
            return "missing"
        except LockCancelledError:
            return "cancelled"
        except LockNotOwnedError:
            return "lost"
        except LockError as error:
            return "too-long" if "max-ttl" in str(error) else repr(error)
        except redis.exceptions.NoPermissionError as error:
            return repr(error)

    def take(self, kind: str, *words: str) -> str:
        names = [word for word in words if "=" not in word]
        options = {"ttl": 30_000, "wait": 0} | {
            key: int(value) for key, _, value in (word.partition("=") for word in words if "=" in word)
        }
        more: Any = {
            "timeout": options["ttl"] / 1000,
            "blocking_timeout": options["wait"] / 1000,
            "thread_local": False,
            "fallback": self.fallback,
        }
        if kind == "permit":
            self.lock = Semaphore(self.client, names[0], int(names[1]), **more)
        elif kind == "multi":
            exclusive, shared = " ".join(names).partition("/")[::2]
            self.lock = MultiLock(self.client, exclusive.split(), shared=shared.split(), **more)
        else:
            self.lock = KINDS[kind](self.client, names[0], **more)
        return "held" if self.lock.acquire() else "busy"

    def release(self) -> str:
        if self.kept:
            self.kept.__exit__()
        self.lock.release()
        return "ok"

    def renew(self, ms: str | None = None) -> str:
        if ms is None:
            self.lock.reacquire()
        else:
            self.lock.extend(int(ms) / 1000, replace_ttl=True)
        return "ok"

    def check(self) -> str:
        held = self.lock.owned() if self.fallback else self.lock.check() is not None
        return "yes" if held else "no"

    def exec(self, *words: str) -> str:
        return text(self.lock.exec(*words))

    def keep(self) -> str:
        self.kept = self.lock.keep_alive().__enter__()
        return ""

    def told(self) -> str:
        assert self.kept
        assert self.kept.lost.wait(10)
        return ""

    def once(self, name: str, most: str, least: str) -> str:
        times = {"at_most": int(most) / 1000, "at_least": int(least) / 1000}
        ran = run_once(self.client, name, lambda: None, fallback=self.fallback, **times)
        return "ran" if ran else "skipped"


def text(reply: Any) -> str:
    return reply.decode() if isinstance(reply, bytes) else "OK" if reply is True else str(reply)


class Play:
    def __init__(self, server: Server, fallback: bool, pool: ThreadPoolExecutor) -> None:
        self.server = server
        self.fallback = fallback
        self.pool = pool
        self.actors: dict[str, Actor] = {}

    def step(self, subject: str, *words: str) -> str:
        if not subject.isupper():
            return getattr(self, subject)(*words) or ""
        if subject not in self.actors:
            self.actors[subject] = Actor(self.server, self.fallback)
        actor = self.actors[subject]
        if words[0] == "begin":
            actor.pending = self.pool.submit(actor.do, *words[1:])
            return ""
        return actor.pending.result(30) if words[0] == "end" else actor.do(*words)

    def fence(self, who: str) -> str:
        return str(self.actors[who].lock.fence)

    def rises(self, one: str, other: str) -> None:
        fences = [self.actors[who].lock.local.fence for who in (one, other)]
        assert fences[0] < fences[1], fences

    def queue(self, key: str, number: str) -> None:
        self.server.wait_for_waiters(key, int(number))

    def gone(self, key: str) -> None:
        until(lambda: not self.server.admin.exists(key), f"the end of {key}")

    def calls(self, command: str) -> str:
        return str(self.server.calls(command))

    def pause(self, ms: str) -> None:
        time.sleep(int(ms) / 1000)


@pytest.mark.parametrize(("name", "steps"), scenarios())
def test_scenario(places: dict[str, Server], name: str, steps: list[list[str]]) -> None:
    _, _, place = name.partition(" on ")
    server = places[place if place in places else ""]
    if name.endswith("needs exec") and server.version.startswith("redis-6"):
        pytest.skip("no LOCK.EXEC")
    server.admin.flushall()
    server.admin.config_resetstat()
    with ThreadPoolExecutor() as pool:
        play = Play(server, place == "plain", pool)
        for words in steps:
            said, want = (words[:-2], words[-1]) if words[-2:-1] == ["="] else (words, None)
            got = text(server.admin.execute_command(*said[1:])) if said[0] == "server" else play.step(*said)
            assert want is None or got == want, " ".join(words)
        for actor in play.actors.values():
            if actor.kept:
                actor.kept.__exit__()
            actor.client.close()
