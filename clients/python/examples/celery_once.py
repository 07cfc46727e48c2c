"""Celery: a task that many workers get, and one runs. Run it beside a server with the module: REDIS_URL=redis://…

It prints

monday: [None, None, None, None, 'written for monday']
tuesday: written for tuesday
ran 1 time
"""

import os
import time

import redis
from celery import Celery
from celery.contrib.testing.worker import start_worker

from redis_lock_client.contrib.celery import Once

client = redis.Redis.from_url(os.environ.get("REDIS_URL", "redis://127.0.0.1:6379"))

# A real application names its broker here: redis://…
app = Celery("example", broker="memory://", backend="cache+memory://")


@app.task(base=Once, lock_client=client, lock_name="report:{day}", at_most=60, at_least=30)
def report(day: str) -> str:
    """Write the report of a day."""
    client.incr(f"reports:{day}")
    time.sleep(0.2)
    return f"written for {day}"


def main() -> None:
    """Send the task of one day five times, and of another day once."""
    with start_worker(app, pool="threads", concurrency=4, perform_ping_check=False):
        results = [report.delay("monday") for _ in range(5)] + [report.delay("tuesday")]
        answers = [result.get(timeout=20) for result in results]
    print("monday:", sorted(answers[:5], key=str))
    print("tuesday:", answers[5])
    print("ran", int(client.get("reports:monday") or 0), "time")


if __name__ == "__main__":
    main()
