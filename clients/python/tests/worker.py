"""What a test that is written once needs: either package, and a worker of any kind that acquires once."""

import asyncio
import contextlib
import functools
import inspect
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import redis
import redis.asyncio
import redis.asyncio.retry
import redis.retry
from redis.backoff import NoBackoff

import redis_lock_client
import redis_lock_client.asyncio as ours

from .server import PATIENCE

KINDS = ["threads", "asyncio", "notify"]

# What can be waited for, each with its command.
LOCKS = {"Lock": "lock.acquire", "Semaphore": "lock.acquire", "MultiLock": "lock.macquire"}
BOTH = ["stock", "prices"]


class Package:
    """One of the two packages: `now` returns what a call of either leads to."""

    def __init__(self, kind: str) -> None:
        self.is_sync = kind == "threads"
        self.locks: Any = redis_lock_client if self.is_sync else ours
        self.redis: Any = redis if self.is_sync else redis.asyncio

    @functools.cached_property
    def loop(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.new_event_loop()
        threading.Thread(target=loop.run_forever, daemon=True).start()
        return loop

    def now(self, value: Any) -> Any:
        is_later = inspect.iscoroutine(value)
        return asyncio.run_coroutine_threadsafe(value, self.loop).result(3 * PATIENCE) if is_later else value

    def made(self, what: str, client: Any, name: Any = None, **options: Any) -> Any:
        """A lock of `stock`, a semaphore with one permit, or a lock of `stock` and another key."""
        permits = {"permits": 1} if what == "Semaphore" else {}
        default = BOTH if what == "MultiLock" else "stock"
        more: Any = {"timeout": 30, "thread_local": False, **permits, **options}
        return getattr(self.locks, what)(client, name or default, **more)

    def lock(self, client: Any, **options: Any) -> Any:
        return self.made("Lock", client, **options)

    @contextlib.contextmanager
    def closing(self, client: Any) -> Iterator[Any]:
        yield client
        self.close(client)

    def no_retry(self) -> Any:
        return (redis.retry if self.is_sync else redis.asyncio.retry).Retry(NoBackoff(), 0)

    def client(self, **settings: Any) -> Any:
        """A client that does not resend by itself."""
        return self.closing(self.redis.Redis(retry=self.no_retry(), **settings))

    def close(self, client: Any) -> None:
        self.now(client.close() if self.is_sync else client.aclose())

    def end(self) -> None:
        if not self.is_sync:
            self.now(cancel_others())
            self.loop.call_soon_threadsafe(self.loop.stop)


async def cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


class Worker:
    """Acquires in the background, by a class of the package, and calls back while it holds it."""

    def __init__(
        self,
        kind: str,
        connect: Callable[[Package], Any],
        inside: Callable[[], object] = lambda: None,
        what: str = "Lock",
        token: str | None = None,
        **lock: Any,
    ) -> None:
        self._package = Package(kind)
        self._connect, self._inside, self._what, self._token = connect, inside, what, token
        self._lock = lock | ({"wait": "notify"} if kind == "notify" else {})
        self.fence: int | None = None
        self._done: Future[bool] = Future()
        threading.Thread(target=self._run, daemon=True).start()

    def result(self, timeout: float = 2 * PATIENCE) -> bool:
        """Wait for the end, and return whether it was granted."""
        return self._done.result(timeout)

    def fence_when_done(self) -> int:
        assert self.result()
        assert self.fence
        return self.fence

    def is_done(self) -> bool:
        return self._done.done()

    def _run(self) -> None:
        try:
            self._done.set_result(self._work())
        except Exception as error:
            self._done.set_exception(error)
        self._package.end()

    def _work(self) -> bool:
        now = self._package.now
        client = self._connect(self._package)
        lock = self._package.made(self._what, client, **self._lock)
        granted: bool = now(lock.acquire(token=self._token))
        if granted:
            self.fence = lock.fence
            self._inside()
            now(lock.release())
        self._package.close(client)
        return granted


def at(port: int, **settings: Any) -> Callable[[Package], Any]:
    """What connects a worker: a client at its defaults, unless something is said about it."""
    return lambda package: (
        package.redis.Redis(port=port, retry=package.no_retry(), **settings)
        if settings
        else package.redis.Redis(port=port)
    )
