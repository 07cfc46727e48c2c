"""What a test that is written once needs: either package, and a worker of any kind that acquires once."""

import asyncio
import contextlib
import inspect
import threading
from collections.abc import Callable, Iterator
from typing import Any

import redis
import redis.asyncio
import redis.asyncio.retry
import redis.retry
from redis.backoff import NoBackoff

import redis_lock_client
import redis_lock_client.asyncio as ours

KINDS = ["threads", "asyncio", "notify"]

# What can be waited for, each with its command.
LOCKS = {"Lock": "lock.acquire", "Semaphore": "lock.acquire", "MultiLock": "lock.macquire"}
BOTH = ["stock", "prices"]


def made(package: Any, what: str, client: Any, name: Any = None, **options: Any) -> Any:
    """A lock of `stock`, a semaphore with one permit, or a lock of `stock` and another key."""
    permits = {"permits": 1} if what == "Semaphore" else {}
    default = BOTH if what == "MultiLock" else "stock"
    return getattr(package, what)(client, name or default, **{"timeout": 30, **permits, **options})


class Package:
    """One of the two packages: `now` returns what a call of either leads to."""

    def __init__(self, kind: str) -> None:
        self.is_sync = kind == "threads"
        self.locks: Any = redis_lock_client if self.is_sync else ours
        self.redis: Any = redis if self.is_sync else redis.asyncio
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()

    def now(self, value: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(value, self.loop).result(30) if inspect.iscoroutine(value) else value

    def made(self, what: str, client: Any, **options: Any) -> Any:
        return made(self.locks, what, client, thread_local=False, **options)

    def lock(self, client: Any, **options: Any) -> Any:
        return self.made("Lock", client, **options)

    @contextlib.contextmanager
    def closing(self, client: Any) -> Iterator[Any]:
        yield client
        self.close(client)

    def client(self, **settings: Any) -> Any:
        """A client that does not resend by itself."""
        retry = (redis.retry if self.is_sync else redis.asyncio.retry).Retry(NoBackoff(), 0)
        return self.closing(self.redis.Redis(retry=retry, **settings))

    def close(self, client: Any) -> None:
        self.now(client.close() if self.is_sync else client.aclose())

    def end(self) -> None:
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
        port: int,
        inside: Callable[[], object] = lambda: None,
        client: dict[str, Any] | None = None,
        what: str = "Lock",
        **lock: Any,
    ) -> None:
        self._what = what
        self._port = port
        self._inside = inside
        self._client = {"port": port, **(client or {})}
        self._lock = lock | ({"wait": "notify"} if kind == "notify" else {})
        self.granted: bool | None = None
        self.error: Exception | None = None
        self._thread = threading.Thread(target=self._run, args=(kind,), daemon=True)
        self._thread.start()

    def result(self, timeout: float = 20.0) -> bool:
        """Wait for the end, and return whether it was granted."""
        self._thread.join(timeout)
        assert not self._thread.is_alive(), "it still waits"
        if self.error:
            raise self.error
        assert self.granted is not None
        return self.granted

    def is_done(self) -> bool:
        return not self._thread.is_alive()

    def _run(self, kind: str) -> None:
        try:
            if kind == "threads":
                self._in_thread()
            else:
                asyncio.run(self._in_loop())
        except Exception as error:
            self.error = error

    def _in_thread(self) -> None:
        with redis.Redis(**self._settings(redis.retry.Retry(NoBackoff(), 0))) as client:
            lock = made(redis_lock_client, self._what, client, **self._lock)
            self.granted = lock.acquire()
            if self.granted:
                self._inside()
                lock.release()

    async def _in_loop(self) -> None:
        async with redis.asyncio.Redis(**self._settings(redis.asyncio.retry.Retry(NoBackoff(), 0))) as client:
            lock = made(ours, self._what, client, **self._lock)
            self.granted = await lock.acquire()
            if self.granted:
                self._inside()
                await lock.release()

    def _settings(self, no_retry: Any) -> dict[str, Any]:
        # At the defaults of the client, unless something is said about it.
        return self._client if len(self._client) == 1 else {"retry": no_retry, **self._client}
