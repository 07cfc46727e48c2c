"""APScheduler: a job that each of many processes schedules, and one runs. REDIS_URL=redis://… names the server.

It prints

ran 1 of 3
nights: 1
"""

import os
import time
from datetime import UTC
from queue import Queue

import redis
from apscheduler.schedulers.background import BackgroundScheduler

from redis_lock_client import TaskResult, runs_once

client = redis.Redis.from_url(os.environ.get("REDIS_URL", "redis://127.0.0.1:6379"))


@runs_once(client, "nightly", at_most=60, at_least=30)
def nightly() -> str:
    """Do what must be done once a night."""
    client.incr("nights")
    time.sleep(0.2)
    return "done"


def main() -> None:
    """Start three schedulers, as three processes would, with the same job at the same time."""
    results: Queue[TaskResult[str]] = Queue()
    schedulers = [BackgroundScheduler(timezone=UTC) for _ in range(3)]
    for scheduler in schedulers:
        scheduler.add_job(lambda: results.put(nightly()))
        scheduler.start()
    told = [results.get(timeout=20) for _ in schedulers]
    for scheduler in schedulers:
        scheduler.shutdown()
    print("ran", sum(result.was_executed for result in told), "of", len(told))
    print("nights:", int(client.get("nights") or 0))


if __name__ == "__main__":
    main()
