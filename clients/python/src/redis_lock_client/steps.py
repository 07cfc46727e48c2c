"""What is written once for threads and for tasks: generators, whose steps a thread or a task does.

They yield what a driver has returned. For a thread that is the result, and a task awaits it.
"""

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Coroutine, Generator
from threading import Lock, Thread
from typing import Any, ParamSpec, TypeVar

# For how many seconds at most a server that does not answer holds up who gives up.
IMPATIENCE = 2.0

P = ParamSpec("P")
T = TypeVar("T")
Steps = Generator[Any, Any, T]


# Do the steps in this thread.
def run(steps: Steps[T], error: BaseException | None = None) -> T:
    try:
        result = steps.throw(error) if error else next(steps)
        while True:
            result = steps.send(result)
    except StopIteration as end:
        done: T = end.value
        return done
    except BaseException as caught:
        if not steps.gi_suspended:  # type: ignore[attr-defined]
            # Out of a generator this error of a user's function comes as the cause of another.
            if isinstance(caught.__cause__, StopIteration):
                raise caught.__cause__ from None
            raise
        # A signal handler may raise at any time, also between two steps.
        return run(steps, caught)


# Do the steps in this task.
async def run_async(steps: Steps[T]) -> T:
    result: Any = None
    error: BaseException | None = None
    try:
        while True:
            step = steps.throw(error) if error else steps.send(result)
            try:
                result, error = await step, None
            except BaseException as caught:
                error = caught
    except StopIteration as end:
        done: T = end.value
        return done
    finally:
        # Its traceback refers to this frame.
        error = None


# Of threads. One that a thread of the parent holds is free in a child: that thread is not there, and would never end.
class Mutex:
    # Free.
    def __init__(self) -> None:
        self.lock, self._pid = Lock(), os.getpid()

    # Do it while nobody else does. A signal handler may raise at any time: `with` alone keeps nothing locked then.
    def alone(self, steps: Steps[T]) -> T:
        if self._pid != os.getpid():
            self.lock, self._pid = Lock(), os.getpid()
        with self.lock:
            return run(steps)


# Of tasks.
class AsyncMutex(asyncio.Lock):
    async def alone(self, steps: Steps[T]) -> T:
        async with self:
            return await run_async(steps)


# Do it in a thread of its own, and wait for it for so many seconds at most.
def beside(work: Callable[[], object], name: str, seconds: float = 0) -> None:
    thread = Thread(target=work, name=f"redis-lock {name}", daemon=True)
    try:
        thread.start()
        thread.join(seconds)
    except RuntimeError:
        # The process may start no more threads.
        with contextlib.suppress(Exception):
            thread.run()


# A task that nothing refers to may vanish.
_unfinished: "set[asyncio.Task[Any]]" = set()


# Let a task go on by itself. Its errors are of interest only to who waits for it.
def go_on(doing: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
    task = asyncio.create_task(doing)
    _unfinished.add(task)
    task.add_done_callback(_unfinished.discard)
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return task


# Do it to its end, whatever becomes of the caller: it may be cancelled many times, and its loop end.
# The caller waits for `IMPATIENCE` at most. Then it goes on by itself, if it may.
async def finish(make: Callable[[], Steps[None]], may_go_on: bool = True) -> None:
    end = time.monotonic() + IMPATIENCE

    async def work() -> None:
        # The loop may be about to end, and waits for this task. What is done twice does no harm.
        for _ in range(2):
            with contextlib.suppress(asyncio.CancelledError):
                return await run_async(make())
            if not may_go_on and time.monotonic() >= end:
                raise asyncio.CancelledError
        await run_async(make())

    task = go_on(work())
    cancelled: asyncio.CancelledError | None = None
    while not task.done() and (left := end - time.monotonic()) > 0:
        try:
            await asyncio.wait([task], timeout=left)
        except asyncio.CancelledError as error:
            cancelled = error
    if not may_go_on:
        task.cancel()
    if cancelled:
        raise cancelled
