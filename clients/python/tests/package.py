"""What a test that is written once needs: either package, in any way to wait."""

import asyncio
import contextlib
import functools
import inspect
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Self

import pytest
import redis
import redis.asyncio
import redis.asyncio.retry
import redis.retry
from redis.backoff import NoBackoff

import redis_lock_client
import redis_lock_client.asyncio

from .server import PATIENCE, until

KINDS = ["threads", "asyncio", "notify"]
# What can be waited for, each with its command.
LOCKS = {"Lock": "lock.acquire", "Semaphore": "lock.acquire", "MultiLock": "lock.macquire"}
BOTH = ["stock", "prices"]


class Package:
    """One of the two packages, with `wait="notify"` if it is named so."""

    def __init__(self, kind: str) -> None:
        self.is_sync = kind == "threads"
        self.locks: Any = redis_lock_client if self.is_sync else redis_lock_client.asyncio
        self.redis: Any = redis if self.is_sync else redis.asyncio
        self.options: dict[str, Any] = {"wait": "notify"} if kind == "notify" else {}
        self._pool = ThreadPoolExecutor(30)

    @functools.cached_property
    def loop(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.new_event_loop()
        threading.Thread(target=loop.run_forever, daemon=True).start()
        return loop

    def now(self, value: Any) -> Any:
        """What the call of a function of either package leads to."""
        is_later = inspect.iscoroutine(value)
        return asyncio.run_coroutine_threadsafe(value, self.loop).result(3 * PATIENCE) if is_later else value

    def begin(self, call: Callable[..., Any], *args: Any, **options: Any) -> "Future[Any]":
        """Call in a thread or in a task."""
        if self.is_sync:
            return self._pool.submit(call, *args, **options)
        return asyncio.run_coroutine_threadsafe(call(*args, **options), self.loop)

    def later(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function as the package takes it: asyncio awaits what it calls."""

        @functools.wraps(function)
        async def later(*args: Any, **options: Any) -> Any:
            return await asyncio.to_thread(function, *args, **options)

        return function if self.is_sync else later

    def interrupt(self, call: Callable[..., Any], when: Callable[[], Any], **options: Any) -> None:
        """Call, and end it when that is true: by a signal, or by a cancellation."""

        def interrupt() -> None:
            until(when, "the moment to interrupt")
            os.kill(os.getpid(), signal.SIGINT)

        async def cancel() -> None:
            task = asyncio.create_task(call(**options))
            await asyncio.to_thread(until, when, "the moment to cancel")
            task.cancel()
            await asyncio.wait([task], timeout=PATIENCE / 4)
            assert task.cancelled()

        if self.is_sync:
            threading.Thread(target=interrupt).start()
            with pytest.raises(KeyboardInterrupt):
                call(**options)
        else:
            self.now(cancel())

    def made(self, what: str, client: Any, name: Any = None, **options: Any) -> Any:
        """A lock of `stock`, a semaphore with one permit, or a lock of `stock` and another key."""
        permits = {"permits": 1} if what == "Semaphore" else {}
        default = BOTH if what == "MultiLock" else "stock"
        more = {"timeout": 30, "thread_local": False, **permits, **self.options, **options}
        return getattr(self.locks, what)(client, name or default, **more)

    def lock(self, client: Any, **options: Any) -> Any:
        return self.made("Lock", client, **options)

    @contextlib.contextmanager
    def client(self, port: int, **settings: Any) -> Iterator[Any]:
        """A client that does not resend by itself."""
        retry = (redis.retry if self.is_sync else redis.asyncio.retry).Retry(NoBackoff(), 0)
        with self.closing(self.redis.Redis(port=port, **{"retry": retry, **settings})) as client:
            yield client

    @contextlib.contextmanager
    def closing(self, client: Any) -> Iterator[Any]:
        yield client
        self.now(client.close() if self.is_sync else client.aclose())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(wait=False)
        if not self.is_sync:
            self.now(cancel_others())
            self.loop.call_soon_threadsafe(self.loop.stop)


class Kept:
    """A hold that is kept alive, in asyncio by a task that is cancelled when it is lost."""

    def __init__(self, package: Package, lock: Any) -> None:
        self._package = package
        self.told, self._stopped, begun = threading.Event(), asyncio.Event(), threading.Event()
        if package.is_sync:
            self._context = lock.keep_alive(on_lost=self.told.set).__enter__()
        else:
            self._context = lock.keep_alive()
            self._task = package.begin(self._keep, begun.set)
            assert begun.wait(PATIENCE)

    async def _keep(self, begun: Callable[[], None]) -> None:
        try:
            async with self._context:
                begun()
                await self._stopped.wait()
        except redis_lock_client.LockNotOwnedError:
            self.told.set()

    def is_lost(self) -> bool:
        """Whether the client says so, without a question to the server."""
        lost: Any = self._context.lost
        return bool(lost.is_set() if self._package.is_sync else lost)

    def stop(self) -> None:
        if self._package.is_sync:
            self._context.__exit__()
        else:
            self._package.loop.call_soon_threadsafe(self._stopped.set)
            self._task.result(PATIENCE)


async def cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
