"""Prints what the clients of one process believe they hold, while servers fail over.

    beliefs.py PORT KEYS KEY CLIENTS TTL_MS HOLD_MS

Each client is a thread. It takes one of so many locks, KEY0, KEY1, …, keeps it alive for so long, releases it, and
begins again until the process ends. It prints a line for each hold: LOCK TOKEN FENCE FROM_US UNTIL_US, by the
machine's monotonic clock. UNTIL is when the lock was last seen not to be lost. `start` goes to stderr.
"""

import random
import sys
import threading
import time

import redis

from redis_lock_client import Lock


def now_us() -> int:
    return time.monotonic_ns() // 1000


def hold(lock: Lock, seconds: float) -> None:
    """Keep the lock for so long, unless it is lost before, and tell of it."""
    begun = until = now_us()
    token, fence = lock.local.token, lock.fence
    with lock.keep_alive() as lease:
        # Looked at after the clock, so that the lock was held at that time.
        while (now := now_us()) < begun + seconds * 1e6 and not lease.lost.is_set():
            until = now
            time.sleep(0.005)
    print(f"{lock.name} {token.decode()} {fence} {begun} {until}", flush=True)


def client(port: str, keys: str, key: str, ttl_ms: str, hold_ms: str) -> None:
    """Hold one of the locks after the other, until the process is ended."""
    connection = redis.Redis(port=int(port))
    while True:
        lock = Lock(connection, f"{key}{random.randrange(int(keys))}", timeout=int(ttl_ms) / 1000)
        try:
            with lock:
                hold(lock, int(hold_ms) / 1000)
        except redis.RedisError as error:
            print(error, file=sys.stderr)
            time.sleep(0.05)


if __name__ == "__main__":
    port, keys, key, clients, ttl_ms, hold_ms = sys.argv[1:]
    print("start", file=sys.stderr, flush=True)
    for _ in range(int(clients)):
        threading.Thread(target=client, args=(port, keys, key, ttl_ms, hold_ms)).start()
