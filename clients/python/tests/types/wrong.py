"""Not run: mypy has to find an error in each line that says so, and in no other. `test_types.py` compares them."""

import redis
import redis.asyncio

import redis_lock_client as sync
import redis_lock_client.asyncio as ours

client = redis.Redis()
async_client = redis.asyncio.Redis()

sync.Lock(client, "stock", tiemout=30)  # wrong: tiemout
sync.Lock(client, "stock", timeout="30")  # wrong: timeout
sync.ReadLock(client, "stock", time_out=30)  # wrong: time_out
sync.RWLock(client, "stock", timout=30)  # wrong: timout
sync.RWLock(client, "stock").write(blocking_timout=3)  # wrong: blocking_timout
sync.Semaphore(client, "stock", 3, permits_=3)  # wrong: permits_
sync.MultiLock(client, ["a", "b"], share=["c"])  # wrong: share
sync.run_once(client, "report", lambda: 7, at_most=600, at_last=60)  # wrong: at_last
sync.once(client, "page", lambda: b"", kept=60)  # wrong: kept
sync.single_flight(client, "page", earl=10)  # wrong: earl
sync.idempotent(client, "page", early=10)  # wrong: early

ours.Lock(async_client, "stock", tiemout=30)  # wrong: tiemout
ours.Lock(async_client, "stock", wait="notified")  # wrong: wait
ours.RWLock(async_client, "stock").read(blocking_timout=3)  # wrong: blocking_timout
ours.Semaphore(async_client, "stock", 3, graze=2)  # wrong: graze
ours.MultiLock(async_client, ["a", "b"], timout=30)  # wrong: timout
ours.single_flight(async_client, "page", earl=10)  # wrong: earl

client.lock("stock", timeout=30, lock_class=sync.Lock)
async_client.lock("stock", timeout=30, lock_class=ours.Lock)
