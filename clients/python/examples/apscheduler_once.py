"""APScheduler: a job that each of many processes schedules, and one runs. REDIS_URL=redis://… names the server."""

import os
import threading
import time
from datetime import UTC, datetime, timedelta

import redis
from apscheduler.events import EVENT_JOB_EXECUTED, JobExecutionEvent
from apscheduler.schedulers.background import BackgroundScheduler

from redis_lock_client import runs_once

client = redis.Redis.from_url(os.environ.get("REDIS_URL", "redis://127.0.0.1:6379"))


@runs_once(client, "nightly", at_most=60, at_least=30)
def nightly() -> str:
    """Do what must be done once a night."""
    client.incr("nights")
    time.sleep(0.2)
    return "done"


def main() -> None:
    """Start three schedulers, as three processes would, with the same job at the same time."""
    results, all_ran = [], threading.Event()

    def note(event: JobExecutionEvent) -> None:
        results.append(event.retval)
        if len(results) == 3:
            all_ran.set()

    schedulers = [BackgroundScheduler(timezone=UTC) for _ in range(3)]
    at = datetime.now(UTC) + timedelta(seconds=0.3)
    for scheduler in schedulers:
        scheduler.add_listener(note, EVENT_JOB_EXECUTED)
        scheduler.add_job(nightly, "date", run_date=at, misfire_grace_time=60)
        scheduler.start()
    all_ran.wait(20)
    for scheduler in schedulers:
        scheduler.shutdown()
    print("ran", sum(result.was_executed for result in results), "of", len(results))
    print("nights:", int(client.get("nights") or 0))


if __name__ == "__main__":
    main()
