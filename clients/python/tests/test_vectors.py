"""Plays the scenarios of clients/vectors, which all the adapters have in common."""

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import Any

import pytest
import redis

from redis_lock_client import InProgressError, LockCancelledError, LockNotOwnedError, ModuleMissingError
from redis_lock_client.results import lock_key

from .package import Kept
from .proxy import Proxy
from .server import running, until, versions

VECTORS = Path(__file__).parents[2] / "vectors"
CLASSES = {"lock": "Lock", "read": "ReadLock", "write": "WriteLock", "permit": "Semaphore", "multi": "MultiLock"}


class MakerError(Exception):
    pass


# The first class of an error counts.
RESULTS: dict[type[Exception], str] = {
    ModuleMissingError: "missing",
    LockCancelledError: "cancelled",
    LockNotOwnedError: "lost",
    InProgressError: "busy",
    MakerError: "failed",
    redis.exceptions.NoPermissionError: "denied",
}


def scenarios(*files):
    found: list[tuple[str, list[list[str]]]] = []
    for line in "\n".join((VECTORS / file).read_text() for file in files).splitlines():
        words = line.partition("#")[0].split()
        if words[:1] == ["scenario"]:
            found.append((line.removeprefix("scenario "), []))
        elif words:
            found[-1][1].append(words)
    return [pytest.param(name, steps, id=name) for name, steps in found]


@pytest.fixture(scope="module", params=versions())
def places(request):
    with (
        running(request.param) as server,
        running(request.param, with_module=False) as plain,
        running(request.param, "max-ttl", "2000") as bounded,
    ):
        yield {"": server, "plain": plain, "strict": plain, "bounded": bounded}


def text(reply):
    return reply.decode() if isinstance(reply, bytes) else "OK" if reply is True else str(reply)


def yes_or_no(is_so):
    return "yes" if is_so else "no"


def options_of(words, **defaults):
    """The words without options, and the options."""
    said = dict(word.split("=") for word in words if "=" in word)
    return [word for word in words if "=" not in word], defaults | said


class Actor:
    """A program with a client of its own, and what it holds."""

    def __init__(self, package, server, fallback):
        self.package, self.now = package, package.now
        # So that its connections can be cut.
        self.proxy = Proxy(server.port).__enter__()
        self.client: Any = package.redis.Redis(port=self.proxy.port)
        self.fallback = fallback
        self.lock: Any
        self.kept: Kept | None = None
        # Of a value: how many makers have begun, and what the next one does.
        self.made = 0
        self.has_begun = threading.Event()
        self.orders: Queue[str | None] = Queue()
        self.pending: Future[str]

    def end(self):
        self.stop_keeping()
        with self.package.closing(self.client):
            pass
        self.proxy.__exit__()

    def do(self, verb, *words):
        try:
            done: str | None = self.take(verb, *words) if verb in CLASSES else getattr(self, verb)(*words)
            return done or "ok"
        except Exception as error:
            if "lock.max-ttl" in str(error):
                return "too-long"
            for cls, said in RESULTS.items():
                if isinstance(error, cls):
                    return said
            raise

    def take(self, kind, *words):
        names, said = options_of(words, ttl=30_000, wait=0)
        more: Any = {"timeout": int(said["ttl"]) / 1000, "blocking_timeout": int(said["wait"]) / 1000}
        if "linger" in said:
            more["linger"] = int(said["linger"]) / 1000
        name: Any = names[0]
        if kind == "permit":
            more["permits"] = int(names[1])
        elif kind == "multi":
            name, more["shared"] = (part.split() for part in " ".join(names).partition("/")[::2])
        self.lock = self.package.made(CLASSES[kind], self.client, name, fallback=self.fallback, **more)
        return "held" if self.now(self.lock.acquire()) else "busy"

    def release(self):
        self.stop_keeping()
        self.now(self.lock.release())

    def renew(self, ms=None):
        self.now(self.lock.extend(int(ms) / 1000, replace_ttl=True) if ms else self.lock.reacquire())

    def check(self):
        return yes_or_no(self.now(self.lock.owned() if self.fallback else self.lock.check()))

    def exec(self, *words):
        return text(self.now(self.lock.exec(*words)))

    def keep(self):
        self.kept = Kept(self.package, self.lock)

    def told(self):
        assert self.kept
        assert self.kept.told.wait(20)

    def believes(self):
        return yes_or_no(self.kept and not self.kept.is_lost())

    def stop_keeping(self):
        if self.kept:
            self.kept.stop()
        self.kept = None

    def once(self, name, most, least):
        times = {"at_most": int(most) / 1000, "at_least": int(least) / 1000, "fallback": self.fallback}
        job = self.package.later(lambda: None)
        return "ran" if self.now(self.package.locks.run_once(self.client, name, job, **times)) else "skipped"

    def get(self, name, *words):
        _, said = options_of(words, keep=60_000, early=0, ttl=30_000, wait=5_000)
        self.orders, has_made = Queue(), False
        if "make" in said or "fail" in said:
            self.orders.put(said.pop("make", None))
            said.pop("fail", None)

        def make():
            nonlocal has_made
            self.made += 1
            self.has_begun.set()
            if (made := self.orders.get(timeout=20)) is None:
                raise MakerError
            has_made = True
            return made

        times = {key: int(ms) / 1000 for key, ms in said.items()}
        got = text(self.now(self.package.locks.once(self.client, name, self.package.later(make), **times)))
        return f"made:{got}" if has_made else f"got:{got}"

    def making(self):
        assert self.has_begun.wait(20)

    def returns(self, value):
        self.orders.put(value)

    def raises(self):
        self.orders.put(None)


class Play:
    def __init__(self, server, package, fallback, pool):
        self.pool, actors = pool, self.actor
        self.actors: dict[str, Actor] = {}
        self.new_actor = lambda: Actor(package, server, fallback)
        self.steps = {
            "server": lambda *words: text(server.admin.execute_command(*words)),
            "fence": lambda who: actors(who).lock.fence,
            # Also of a hold that is released.
            "rises": lambda one, other: (
                actors(one).lock.local.fence < actors(other).lock.local.fence or pytest.fail("no rise")
            ),
            "queue": lambda key, number: server.wait_for_waiters(key, int(number)),
            "places": lambda key: len(server.waiters(key)),
            "gone": lambda key: until(lambda: not server.admin.exists(key), f"the end of {key}"),
            "calls": server.calls,
            "lock": lock_key,
            "made": lambda: sum(actor.made for actor in self.actors.values()),
            "pause": lambda ms: time.sleep(int(ms) / 1000),
            "cut": lambda who: actors(who).proxy.refuse(),
            "join": lambda who: actors(who).proxy.welcome(),
            "busy": lambda ms: self.make_busy(server, int(ms)),
        }

    def actor(self, who):
        if who not in self.actors:
            self.actors[who] = self.new_actor()
        return self.actors[who]

    def step(self, subject, *words):
        if subject in self.steps:
            return str(self.steps[subject](*words))
        actor = self.actor(subject)
        if words[0] == "begin":
            actor.pending = self.pool.submit(actor.do, *words[1:])
            return ""
        return actor.pending.result(30) if words[0] == "end" else actor.do(*words)

    def make_busy(self, server, ms):
        """Return when the server has begun to answer BUSY."""
        script = """
            local function now() local t = redis.call('TIME') return t[1] * 1000000 + t[2] end
            local start = now() while now() < start + ARGV[1] * 1000 do end
        """
        server.admin.config_set("lua-time-limit", 100)
        self.pool.submit(redis.Redis(port=server.port, socket_timeout=20).eval, script, 0, ms)

        def is_busy():
            try:
                return not server.admin.ping()
            except redis.ResponseError:
                return True

        until(is_busy, "a busy server")


@pytest.mark.parametrize(("name", "steps"), scenarios("scenarios.txt", "faults.txt"))
def test_scenario(places, name, steps, way):
    play(places, name, steps, way)


# A value has no option of how to wait.
@pytest.mark.parametrize(("name", "steps"), scenarios("once.txt"))
def test_scenario_of_a_value(places, name, steps, package):
    play(places, name, steps, package)


def play(places, name, steps, package):
    _, _, place = name.partition(" on ")
    server = places.get(place, places[""])
    server.admin.flushall()
    server.admin.config_resetstat()
    with ThreadPoolExecutor() as pool:
        stage = Play(server, package, place == "plain", pool)
        for words in steps:
            said, want = (words[:-2], words[-1]) if words[-2:-1] == ["="] else (words, None)
            got = stage.step(*said)
            assert want is None or got == want, " ".join(words)
        for actor in stage.actors.values():
            actor.end()
