"""Not run: mypy finds an error in each line that says so, and complains about one that has none (`make check`)."""

import redis
import redis.asyncio

import redis_lock_client as sync
import redis_lock_client.asyncio as ours

client = redis.Redis()
async_client = redis.asyncio.Redis()

sync.Lock(client, "stock", tiemout=30)  # type: ignore[call-arg]
sync.Lock(client, "stock", timeout="30")  # type: ignore[arg-type]
sync.RWLock(client, "stock", timout=30)  # type: ignore[call-arg]
sync.RWLock(client, "stock").write(blocking_timout=3)  # type: ignore[call-arg]
sync.Semaphore(client, "stock", 3, permits_=3)  # type: ignore[call-arg]
sync.MultiLock(client, ["a", "b"], share=["c"])  # type: ignore[call-arg]
sync.run_once(client, "report", lambda: 7, at_most=600, at_last=60)  # type: ignore[call-arg]
sync.once(client, "page", lambda: b"", kept=60)  # type: ignore[call-arg]
sync.single_flight(client, "page", earl=10)  # type: ignore[call-arg]
sync.idempotent(client, "page", early=10)  # type: ignore[call-arg]

ours.Lock(async_client, "stock", tiemout=30)  # type: ignore[call-arg]
ours.Lock(async_client, "stock", wait="notified")  # type: ignore[arg-type]
ours.single_flight(async_client, "page", earl=10)  # type: ignore[call-arg]

client.lock("stock", timeout=30, lock_class=sync.Lock)
async_client.lock("stock", timeout=30, lock_class=ours.Lock)
