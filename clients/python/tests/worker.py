"""One worker that acquires once, in a thread of its own: with threads, with asyncio, and with one that is notified."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import redis
import redis.asyncio
import redis.asyncio.retry
import redis.retry
from redis.backoff import NoBackoff

import redis_lock_client
import redis_lock_client.asyncio as ours

KINDS = ["threads", "asyncio", "notify"]


class Worker:
    """Acquires `stock` in the background, by a class of the package, and calls back while it holds it."""

    def __init__(
        self,
        kind: str,
        port: int,
        inside: Callable[[], object] = lambda: None,
        client: dict[str, Any] | None = None,
        what: str = "Lock",
        name: Any = "stock",
        **lock: Any,
    ) -> None:
        self._what = what
        self._name = name
        self._port = port
        self._inside = inside
        self._client = {"port": port, **(client or {})}
        self._lock = {"timeout": 30, **lock} | ({"wait": "notify"} if kind == "notify" else {})
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
            lock = getattr(redis_lock_client, self._what)(client, self._name, **self._lock)
            self.granted = lock.acquire()
            if self.granted:
                self._inside()
                lock.release()

    async def _in_loop(self) -> None:
        async with redis.asyncio.Redis(**self._settings(redis.asyncio.retry.Retry(NoBackoff(), 0))) as client:
            lock = getattr(ours, self._what)(client, self._name, **self._lock)
            self.granted = await lock.acquire()
            if self.granted:
                self._inside()
                await lock.release()

    def _settings(self, no_retry: Any) -> dict[str, Any]:
        # At the defaults of the client, unless something is said about it.
        return self._client if len(self._client) == 1 else {"retry": no_retry, **self._client}
