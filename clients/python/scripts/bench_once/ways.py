"""The ways in which a client gets a value that is not there."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import redis
import redis.asyncio
from dogpile.cache import make_region

# How long a lock lasts whose owner is silent.
TTL_MS = 3_000
# When the first maker fails, dies or falls silent.
FALLS_AFTER = 0.1


class Raw:
    """A connection that speaks RESP3 and nothing else, so that the clients cost little."""

    sent = 0

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take both ends of it."""
        self.reader, self.writer = reader, writer

    @classmethod
    async def connect(cls, port: int) -> "Raw":
        """Open one."""
        one = cls(*await asyncio.open_connection("127.0.0.1", port))
        await one.call("HELLO", 3)
        return one

    def send(self, *commands: tuple[Any, ...]) -> None:
        """Send commands, and wait for nothing."""
        Raw.sent += len(commands)
        for words in commands:
            parts = [word if isinstance(word, bytes) else str(word).encode() for word in words]
            self.writer.write(b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(p), p) for p in parts))

    async def read(self) -> Any:
        """Return the next reply or message, or raise an error of the server."""
        line = (await self.reader.readuntil(b"\r\n"))[:-2]
        kind, rest = line[:1], line[1:]
        if kind == b"-":
            raise redis.ResponseError(rest.decode())
        if kind == b"$":
            return (await self.reader.readexactly(int(rest) + 2))[:-2]
        if kind in b"*>%":
            return [await self.read() for _ in range(int(rest) * (2 if kind == b"%" else 1))]
        return int(rest) if kind == b":" else None if kind == b"_" else rest

    async def all(self, *commands: tuple[Any, ...]) -> list[Any]:
        """Send commands in one pipeline and return their replies."""
        self.send(*commands)
        return [await self.read() for _ in commands]

    async def call(self, *words: Any) -> Any:
        """Send a command and return its reply."""
        return (await self.all(words))[0]

    async def unsubscribe(self) -> None:
        """Leave all channels, and drop what has come from them."""
        self.send(("UNSUBSCRIBE",))
        while not (isinstance(reply := await self.read(), list) and reply[0] == b"unsubscribe"):
            pass


class GoneError(Exception):
    """The maker has died or fallen silent: it releases nothing."""


class Wanted:
    """A value that many want."""

    def __init__(self, name: str, value: bytes, making: float, first: str = "", keep_ms: int = 60_000) -> None:
        """Say what it is, how long the making takes, and what becomes of the first maker, if it makes no value."""
        self.name, self.value, self.making, self.first, self.keep_ms = name, value, making, first, keep_ms
        self.early_ms = 0
        self.before_it_is_told: Callable[[], object] = lambda: None
        # How many have begun to make it, how many of these when nobody else did, and how many do now.
        self.makings = self.alone = self.makers = 0
        self.made_at: float | None = None

    async def make(self, one: Raw | None = None) -> bytes | None:
        """Make it, or return nothing if the making fails."""
        self.makings += 1
        self.alone += not self.makers
        if self.first and self.makings == 1:
            await asyncio.sleep(FALLS_AFTER)
            if self.first == "failing":
                return None
            if self.first == "killed" and one:
                one.writer.transport.abort()
            raise GoneError
        self.makers += 1
        await asyncio.sleep(self.making)
        self.makers -= 1
        return self.made()

    def made(self) -> bytes:
        """Note when it was first made."""
        self.made_at = self.made_at or time.monotonic()
        self.before_it_is_told()
        return self.value


async def once(one: Raw, of: Wanted, token: str) -> None:
    """Want it by LOCK.ONCE, which looks at the value first."""
    lock = f"{{{of.name}}}:once"
    early = ("EARLY", of.early_ms) if of.early_ms else ()
    reply = await one.call("LOCK.ONCE", lock, of.name, token, TTL_MS, *early, "BLOCK", 0, "LINGER", 0)
    if not isinstance(reply, bytes):
        value = await of.make(one)
        store = [("LOCK.EXEC", lock, token, "SET", of.name, value, "PX", of.keep_ms)] if value else []
        await one.all(*store, ("LOCK.RELEASE", lock, token))


async def pubsub(one: Raw, of: Wanted, token: str) -> None:
    """Want it as MemoLock does, with a channel of its own for each value."""
    if await one.call("GET", of.name) is None:
        await pubsub_after_a_miss(one, of, token)


async def pubsub_after_a_miss(one: Raw, of: Wanted, token: str) -> None:
    """Subscribe to the news of it, and look once more. The time-out comes when the maker's lock has ended."""
    if await one.call("SET", f"{of.name}:lock", token, "NX", "PX", TTL_MS):
        return await store(one, of)
    await one.call("SUBSCRIBE", f"{of.name}:news")
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(TTL_MS / 1_000):
            if await one.call("GET", of.name) is None:
                await one.read()
            return None
    await one.unsubscribe()
    return await store(one, of)


async def store(one: Raw, of: Wanted) -> None:
    """Look once more, make it, store it, and tell those who have subscribed."""
    value = None if await one.call("GET", of.name) else await of.make(one)
    told = [("SET", of.name, value, "PX", of.keep_ms), ("PUBLISH", f"{of.name}:news", value)] if value else []
    await one.all(*told, ("DEL", f"{of.name}:lock"))


async def polling(one: Raw, of: Wanted, token: str) -> None:
    """Want it, and look again each 50 ms."""
    while await one.call("GET", of.name) is None:
        if await one.call("SET", f"{of.name}:lock", token, "NX", "PX", TTL_MS):
            return await store(one, of)
        await asyncio.sleep(0.05)
    return None


async def redis_py(client: redis.asyncio.Redis, of: Wanted, _: str) -> None:
    """Want it under the lock of redis-py, with its defaults."""
    if await client.get(of.name) is None:
        lock = client.lock(f"{of.name}:lock", timeout=TTL_MS / 1_000)
        await lock.acquire()
        if await client.get(of.name) is None and (value := await of.make()):
            await client.set(of.name, value, px=of.keep_ms)
        # It may have ended, because the clients fill their core.
        with contextlib.suppress(redis.exceptions.LockError):
            await lock.release()


async def expiry(one: Raw, of: Wanted, _: str) -> None:
    """Make it without a lock."""
    await one.call("SET", of.name, await of.make(one), "PX", of.keep_ms)


Way = Callable[[Any, Wanted, str], Awaitable[None]]
WAYS: dict[str, Way] = {"once": once, "pubsub": pubsub, "polling": polling, "redis-py": redis_py}


class Dogpile:
    """A region of dogpile.cache for each client, with its Redis backend and the lock of it, in a thread."""

    def __init__(self, port: int, clients: int) -> None:
        """Connect all."""
        settings = {"port": port, "distributed_lock": True, "thread_local_lock": False, "lock_timeout": TTL_MS // 1_000}
        self.regions = [make_region().configure("dogpile.cache.redis", arguments=settings) for _ in range(clients)]
        for region in self.regions:
            region.backend.reader_client.ping()

    def play(self, of: Wanted) -> float:
        """Return when the last one had the value."""
        answered: list[float] = []
        all_but_one_have_it = threading.Event()

        def make() -> bytes:
            of.makings += 1
            if of.first and of.makings == 1:
                time.sleep(FALLS_AFTER)
                # Its lock has ended by then.
                if of.first != "failing":
                    all_but_one_have_it.wait()
                raise GoneError
            time.sleep(of.making)
            return of.made()

        def want(region: Any) -> None:
            with contextlib.suppress(GoneError, redis.exceptions.LockError):
                region.get_or_create(of.name, make)
                answered.append(time.monotonic())
                if len(answered) == len(self.regions) - 1:
                    all_but_one_have_it.set()

        threads = [threading.Thread(target=want, args=(region,)) for region in self.regions]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return max(answered)
