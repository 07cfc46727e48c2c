"""Plays the scenarios of clients/vectors, which all the adapters have in common."""

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import Any

import pytest
import redis

from redis_lock_client import InProgressError, LockCancelledError, LockError, LockNotOwnedError, ModuleMissingError
from redis_lock_client.results import lock_key

from .proxy import Proxy
from .server import Server, running, until, versions
from .worker import KINDS, Package

VECTORS = Path(__file__).parents[2] / "vectors"
CLASSES = {"lock": "Lock", "read": "ReadLock", "write": "WriteLock", "permit": "Semaphore", "multi": "MultiLock"}


def scenarios(*files: str) -> list[Any]:
    found: list[tuple[str, list[list[str]]]] = []
    for line in "\n".join((VECTORS / file).read_text() for file in files).splitlines():
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

    def __init__(self, server: Server, kind: str, fallback: bool) -> None:
        self.package = Package(kind)
        self.now = self.package.now
        # So that its connections can be cut.
        self.proxy = Proxy(server.port).__enter__()
        self.client: Any = self.package.redis.Redis(port=self.proxy.port)
        self.options: dict[str, Any] = {"fallback": fallback}
        if kind == "notify":
            self.options["wait"] = "notify"
        self.lock: Any
        self.kept: Any = None
        # Of a value: how many makers have begun, and what the next one does.
        self.made = 0
        self.has_begun = threading.Event()
        self.orders: Queue[str | None] = Queue()
        self.pending: Future[str]

    def end(self) -> None:
        if self.kept:
            self.stop_keeping()
        self.package.close(self.client)
        self.package.end()
        self.proxy.close()

    def do(self, verb: str, *words: str) -> str:
        try:
            done: str = self.take(verb, *words) if verb in CLASSES else getattr(self, verb)(*words)
            return done
        except ModuleMissingError:
            return "missing"
        except LockCancelledError:
            return "cancelled"
        except LockNotOwnedError:
            return "lost"
        except InProgressError:
            return "busy"
        except MakerError:
            return "failed"
        except LockError as error:
            return "too-long" if "max-ttl" in str(error) else repr(error)
        except redis.exceptions.NoPermissionError:
            return "denied"

    def take(self, kind: str, *words: str) -> str:
        names = [word for word in words if "=" not in word]
        options = {"ttl": 30_000, "wait": 0} | {
            key: int(value) for key, _, value in (word.partition("=") for word in words if "=" in word)
        }
        more: Any = {
            "timeout": options["ttl"] / 1000,
            "blocking_timeout": options["wait"] / 1000,
            "thread_local": False,
            **({"linger": options["linger"] / 1000} if "linger" in options else {}),
            **self.options,
        }
        what: tuple[Any, ...] = (names[0],)
        if kind == "permit":
            what = (names[0], int(names[1]))
        elif kind == "multi":
            exclusive, more["shared"] = (part.split() for part in " ".join(names).partition("/")[::2])
            what = (exclusive,)
        self.lock = getattr(self.package.locks, CLASSES[kind])(self.client, *what, **more)
        return "held" if self.now(self.lock.acquire()) else "busy"

    def release(self) -> str:
        if self.kept:
            self.stop_keeping()
        self.now(self.lock.release())
        return "ok"

    def renew(self, ms: str | None = None) -> str:
        if ms is None:
            self.now(self.lock.reacquire())
        else:
            self.now(self.lock.extend(int(ms) / 1000, replace_ttl=True))
        return "ok"

    def check(self) -> str:
        if self.options["fallback"]:
            return "yes" if self.now(self.lock.owned()) else "no"
        return "yes" if self.now(self.lock.check()) is not None else "no"

    def exec(self, *words: str) -> str:
        return text(self.now(self.lock.exec(*words)))

    def keep(self) -> str:
        self.kept = self.lock.keep_alive().__enter__() if self.package.is_sync else Keeping(self)
        return ""

    def told(self) -> str:
        assert self.kept.lost.wait(20)
        return ""

    def believes(self) -> str:
        lost = self.kept.lost.is_set() if self.package.is_sync else self.kept.context.lost
        return "no" if lost else "yes"

    def stop_keeping(self) -> None:
        self.kept.__exit__()
        self.kept = None

    def once(self, name: str, most: str, least: str) -> str:
        async def job() -> None:
            pass

        times = {"at_most": int(most) / 1000, "at_least": int(least) / 1000, "fallback": self.options["fallback"]}
        work = (lambda: None) if self.package.is_sync else job
        return "ran" if self.now(self.package.locks.run_once(self.client, name, work, **times)) else "skipped"

    def get(self, name: str, *words: str) -> str:
        said = {"keep": "60000", "early": "0", "ttl": "30000", "wait": "5000"} | {
            key: value for key, _, value in (word.partition("=") for word in words)
        }
        self.orders, has_made = Queue(), False
        value, fails = said.pop("make", None), said.pop("fail", None)
        if value is not None or fails:
            self.orders.put(value)

        def make() -> str:
            nonlocal has_made
            self.made += 1
            self.has_begun.set()
            if (made := self.orders.get(timeout=20)) is None:
                raise MakerError
            has_made = True
            return made

        async def make_later() -> str:
            return await asyncio.to_thread(make)

        times: dict[str, Any] = {key: int(ms) / 1000 for key, ms in said.items()}
        maker = make if self.package.is_sync else make_later
        got = text(self.now(self.package.locks.once(self.client, name, maker, **times)))
        return f"made:{got}" if has_made else f"got:{got}"

    def making(self) -> str:
        assert self.has_begun.wait(20)
        return ""

    def returns(self, value: str) -> str:
        self.orders.put(value)
        return ""

    def raises(self) -> str:
        self.orders.put(None)
        return ""


class MakerError(Exception):
    pass


class Keeping:
    """A task that keeps a lock, and is cancelled when it is lost."""

    def __init__(self, actor: Actor) -> None:
        self.actor = actor
        self.lost = threading.Event()
        self.stopped = asyncio.Event()
        begun = threading.Event()

        async def keep() -> None:
            try:
                async with actor.lock.keep_alive() as self.context:
                    begun.set()
                    await self.stopped.wait()
            except LockNotOwnedError:
                self.lost.set()

        self.task = asyncio.run_coroutine_threadsafe(keep(), actor.package.loop)
        assert begun.wait(10)

    def __exit__(self) -> None:
        self.actor.package.loop.call_soon_threadsafe(self.stopped.set)
        self.task.result(10)


def text(reply: Any) -> str:
    return reply.decode() if isinstance(reply, bytes) else "OK" if reply is True else str(reply)


class Play:
    def __init__(self, server: Server, kind: str, fallback: bool, pool: ThreadPoolExecutor) -> None:
        self.server = server
        self.kind = kind
        self.fallback = fallback
        self.pool = pool
        self.actors: dict[str, Actor] = {}

    def step(self, subject: str, *words: str) -> str:
        if not subject.isupper():
            return getattr(self, subject)(*words) or ""
        if subject not in self.actors:
            self.actors[subject] = Actor(self.server, self.kind, self.fallback)
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

    def places(self, key: str) -> str:
        return str(self.server.waiters(key))

    def gone(self, key: str) -> None:
        until(lambda: not self.server.admin.exists(key), f"the end of {key}")

    def calls(self, command: str) -> str:
        return str(self.server.calls(command))

    def lock(self, name: str) -> str:
        return str(lock_key(name))

    def made(self) -> str:
        return str(sum(actor.made for actor in self.actors.values()))

    def pause(self, ms: str) -> None:
        time.sleep(int(ms) / 1000)

    def cut(self, who: str) -> None:
        self.actors[who].proxy.refuse()

    def join(self, who: str) -> None:
        self.actors[who].proxy.welcome()

    def busy(self, ms: str) -> None:
        """Return when the server has begun to answer BUSY."""
        script = "local t = redis.call('TIME') local function now() local t = redis.call('TIME') return t[1] * 1000000 "
        script += "+ t[2] end local s = now() while now() < s + ARGV[1] * 1000 do end"
        self.server.admin.config_set("lua-time-limit", 100)
        self.pool.submit(redis.Redis(port=self.server.port, socket_timeout=20).eval, script, 0, ms)

        def is_busy() -> bool:
            try:
                self.server.admin.ping()
            except redis.ResponseError:
                return True
            return False

        until(is_busy, "a busy server")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("name", "steps"), scenarios("scenarios.txt", "faults.txt"))
def test_scenario(places: dict[str, Server], name: str, steps: list[list[str]], kind: str) -> None:
    play(places, name, steps, kind)


# A value has no option of how to wait.
@pytest.mark.parametrize("kind", ["threads", "asyncio"])
@pytest.mark.parametrize(("name", "steps"), scenarios("once.txt"))
def test_scenario_of_a_value(places: dict[str, Server], name: str, steps: list[list[str]], kind: str) -> None:
    play(places, name, steps, kind)


def play(places: dict[str, Server], name: str, steps: list[list[str]], kind: str) -> None:
    _, _, place = name.partition(" on ")
    server = places[place if place in places else ""]
    server.admin.flushall()
    server.admin.config_resetstat()
    with ThreadPoolExecutor() as pool:
        stage = Play(server, kind, place == "plain", pool)
        for words in steps:
            said, want = (words[:-2], words[-1]) if words[-2:-1] == ["="] else (words, None)
            got = text(server.admin.execute_command(*said[1:])) if said[0] == "server" else stage.step(*said)
            assert want is None or got == want, " ".join(words)
        for actor in stage.actors.values():
            actor.end()
