"""A Celery task that many workers get at the same time, and one of them runs."""

from typing import Any

from celery import Task
from celery.exceptions import Reject, Retry

from ..driver import is_of_asyncio
from ..once import lock_of_job
from ..results import naming
from ..sending import logger


class Once(Task):
    """The base class of a task that runs only if nobody else runs it, or has begun it within `at_least` seconds.

        @app.task(base=Once, lock_client=redis.Redis(), at_most=600, at_least=50)
        def report(): ...

    The options are those of `run_once`. `lock_name` may contain the task's arguments, `"report:{day}"`; it is the
    task's own name when it is not said. A try that Celery is to repeat leaves the lock free at once.
    """

    abstract = True

    # A sync client of redis-py or valkey-py.
    lock_client: Any = None
    lock_name: str | None = None
    at_most: float | None = None
    at_least: float = 0
    linger: float | None = None
    fallback: bool = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the task, or return what `skipped` returns."""
        if self.lock_client is None or is_of_asyncio(self.lock_client) or self.at_most is None:
            raise TypeError(f"the task {self.name} needs lock_client and at_most, and no client for asyncio")
        name = str(naming(self.run, self.lock_name)(*args, **kwargs)) if self.lock_name else f"once:{self.name}"
        options: Any = {option: getattr(self, option) for option in ("at_most", "at_least", "linger", "fallback")}
        once = lock_of_job(self.lock_client, name, **options)
        if not once.acquire():
            return self.skipped(name)
        try:
            return super().__call__(*args, **kwargs)
        except (Reject, Retry) as error:
            # Kept for `at_least`, the lock would have the next try skipped.
            if isinstance(error, Retry) or error.requeue:
                once.at_least = 0
            raise
        finally:
            once.__exit__()

    def skipped(self, name: str) -> Any:
        """Return the result of a call that has not run, because another one has: None, unless this is overridden."""
        logger.info("The task %s was skipped: %s is held.", self.name, name)
