"""The watchdog: long work keeps its lock, and a lost lock stops the work."""

import asyncio
import queue
import threading
import time
from contextlib import ExitStack, suppress
from typing import Any

import pytest
import redis
import redis.asyncio

from redis_lock_client import Lock, LockError, LockNotOwnedError, RWLock, keeper
from redis_lock_client import asyncio as ours

from .package import Kept, Package
from .server import PATIENCE, until

TRY_AGAIN = b"-TRYAGAIN not enough servers have confirmed it"


def kept(client, name="stock", **options):
    lock = Lock(client, name, **{"timeout": 30, "thread_local": False, **options})
    lock.acquire()
    return lock


def test_one_keeper_renews_all_the_holds_of_a_process(server, client, monkeypatch):
    # On a busy machine a renewal takes as long as if the server hung.
    monkeypatch.setattr(keeper, "HANGS", PATIENCE)
    before = threading.active_count()
    with ExitStack() as stack:
        leases = [stack.enter_context(kept(client, f"stock{n}", timeout=3).keep_alive()) for n in range(50)]
        until(lambda: server.calls("lock.renew") >= 150, "two renewals of each")
        # One that looks at the clock and one that renews.
        assert threading.active_count() <= before + 2
        assert not any(lease.lost.is_set() for lease in leases)


def test_neither_a_server_that_hangs_nor_a_slow_on_lost_delays_another_hold(server, proxy, monkeypatch):
    told: queue.Queue[Any] = queue.Queue()
    monkeypatch.setattr(threading, "excepthook", told.put)
    go = threading.Event()

    def slow():
        assert go.wait(PATIENCE)
        raise ZeroDivisionError

    with redis.Redis(port=proxy.port) as hanging, redis.Redis(port=server.port) as client, ExitStack() as stack:
        hung, slow_one, lost, alive = (
            stack.enter_context(kept(each, name, timeout=3).keep_alive(on_lost))
            for each, name, on_lost in [
                (hanging, "hung", None),
                (client, "slow", slow),
                (client, "lost", None),
                (client, "alive", None),
            ]
        )
        proxy.pause()
        client.delete("slow", "lost")
        # Told by the end of the lease, while its renewal hangs.
        assert all(each.lost.wait(PATIENCE) for each in (hung, slow_one, lost))
        renewals = server.calls("lock.renew")
        until(lambda: server.calls("lock.renew") >= renewals + 3, "renewals of the other")
        assert not alive.lost.is_set()
        go.set()
        # An error of it is told as that of any thread.
        assert told.get(timeout=PATIENCE).exc_type is ZeroDivisionError
        proxy.resume()


def test_a_process_that_can_start_no_more_threads_for_a_while_keeps_and_tells_later(client, monkeypatch):
    monkeypatch.setattr(keeper, "KEEPER", keeper.Keeper())
    told = threading.Event()
    # Raises the RuntimeError of a thread that has not started.
    no_start = threading.Thread.join
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_start)
        with pytest.raises(RuntimeError):
            kept(client, "first").keep_alive().__enter__()
    with kept(client, "lost", timeout=3).keep_alive(told.set), kept(client, timeout=3).keep_alive() as lease:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", no_start)
            client.delete("lost")
            assert told.wait(PATIENCE)
        assert not lease.lost.wait(4)


def test_only_a_held_lock_is_kept_alive_and_a_context_is_entered_once(client):
    with pytest.raises(LockError):
        Lock(client, "stock", timeout=30).keep_alive()
    lock = kept(client)
    context = lock.keep_alive()
    with context:
        pass
    with pytest.raises(RuntimeError, match="once only"), context:
        pass
    client.delete("stock")
    with pytest.raises(LockNotOwnedError), lock.keep_alive():
        pass


def test_the_end_of_a_lease_is_told_long_before_the_next_renewal(client, monkeypatch):
    # The work has shortened it.
    lock = kept(client, timeout=600)
    with lock.keep_alive() as lease:
        lock.extend(0.5, replace_ttl=True)
        assert lease.lost.wait(PATIENCE)
    if hasattr(time, "CLOCK_BOOTTIME"):
        # The machine was suspended.
        lock, read = kept(client, "other", timeout=600), time.clock_gettime
        with lock.keep_alive() as lease:
            monkeypatch.setattr(time, "clock_gettime", lambda clock: read(clock) + 700)
            assert lease.lost.wait(PATIENCE)
        with pytest.raises(LockNotOwnedError):
            lock.reacquire()


@pytest.mark.parametrize("options", [{"at_least": 5}, {"linger": 20}, {"timeout": 3}])
def test_renewals_end_with_a_release_which_is_no_loss_and_with_their_context(server, client, options):
    with kept(client, "other", timeout=3).keep_alive():
        pass
    lock = kept(client, **options)
    with lock.keep_alive() as lease:
        lock.release()
        renewals = server.calls("lock.renew")
        time.sleep(1.5)
        assert (lease.lost.is_set(), server.calls("lock.renew")) == (False, renewals)
        assert server.admin.pttl("stock") <= 5_000


def late(lock, monkeypatch, event, go):
    """Let the next renewals come when `go` has returned."""
    renew = lock._renew

    def late_renew(*args):
        event.set()
        yield go()
        return (yield from renew(*args))

    monkeypatch.setattr(lock, "_renew", late_renew)


@pytest.mark.parametrize("options", [{"at_least": 5}, {"linger": 0.3}])
def test_a_release_waits_for_a_renewal_under_way(server, client, monkeypatch, options):
    lock, under_way, go = kept(client, timeout=6, **options), threading.Event(), threading.Event()
    with lock.keep_alive():
        late(lock, monkeypatch, under_way, lambda: go.wait(PATIENCE))
        assert under_way.wait(PATIENCE)
        releasing = threading.Thread(target=lock.release)
        releasing.start()
        releasing.join(0.2)
        assert releasing.is_alive()
        go.set()
        releasing.join(PATIENCE)
    assert server.admin.pttl("stock") <= (5_000 if "at_least" in options else 0)


def test_try_again_loses_nothing_until_the_lease_is_over(server, proxy):
    with redis.Redis(port=proxy.port) as client:
        lock = kept(client, timeout=3)
        # A grant that came late has been renewed already.
        renewals = server.calls("lock.renew")
        proxy.answer(b"LOCK.RENEW", TRY_AGAIN, times=2)
        with lock.keep_alive() as lease:
            assert (proxy.refusals, server.calls("lock.renew")) == (2, renewals + 1)
            proxy.answer(b"LOCK.RENEW", TRY_AGAIN, times=2)
            assert lock.reacquire()
            assert proxy.refusals == 4
            proxy.answer(b"LOCK.RENEW", TRY_AGAIN)
            assert lease.lost.wait(PATIENCE)
        with pytest.raises(LockNotOwnedError):
            lock.reacquire()


def test_a_renewal_with_linger_converts_nothing_back(server, client):
    pair = RWLock(client, "stock", timeout=30, linger=20)
    reader = pair.read()
    reader.acquire()
    assert pair.write().acquire(token=reader.local.token)
    reader.reacquire()
    assert server.mode("stock") == "exclusive"


@pytest.mark.parametrize(
    ("word", "reply", "is_lost"),
    [
        (b"LOCK.ACQUIRE", b"$-1", False),
        (b"LOCK.ACQUIRE", b"-ERR of another kind", False),
        (b"LOCK.ACQUIRE", b"-PARTIAL release them first", True),
        (b"LOCK.ACQUIRE", b"-WRONGTYPE", True),
        # It is lost between both, and not taken anew.
        (b"LOCK.RENEW", b":1", True),
    ],
)
def test_what_the_binding_says_of_the_hold(server, proxy, word, reply, is_lost):
    with redis.Redis(port=proxy.port, protocol=2) as client:
        lock = kept(client, linger=3)
        proxy.answer(word, reply, times=1)
        if not is_lost:
            lock.reacquire()
            # It may be bound to a connection that is gone: the linger goes on, and the ttl begins anew.
            assert lock.local.lease.sure() < 3 < lock.local.lease.left()
            return
        server.admin.delete("stock")
        with pytest.raises(LockNotOwnedError):
            lock.reacquire()
    assert not server.admin.exists("stock")


@pytest.fixture
def tasks():
    with Package("asyncio") as tasks:
        yield tasks


def test_a_task_is_cancelled_by_the_end_of_the_lease_and_by_nothing_that_passes(server, proxy, tasks):
    with tasks.client(proxy.port, socket_timeout=20) as client:
        lock = tasks.lock(client, timeout=3, at_least=1)
        tasks.now(lock.acquire())
        work = Kept(tasks, lock)
        proxy.answer(b"LOCK.RENEW", TRY_AGAIN, times=2)
        renewals = server.calls("lock.renew")
        until(lambda: server.calls("lock.renew") > renewals, "a renewal that is answered")
        assert (proxy.refusals, work.is_lost()) == (2, False)
        proxy.silence()
        assert work.told.wait(PATIENCE)
        # Its release does not wait for the renewal under way.
        with suppress(LockNotOwnedError):
            tasks.now(asyncio.wait_for(lock.release(), 5))


def test_a_cancellation_from_outside_stays_one(server, tasks):
    with tasks.client(server.port) as client:
        lock = tasks.lock(client)
        tasks.now(lock.acquire())
        inside = threading.Event()

        async def work():
            async with lock.keep_alive():
                inside.set()
                await asyncio.sleep(PATIENCE)

        tasks.interrupt(work, inside.is_set)
        assert tasks.now(lock.owned())


async def test_to_leave_during_a_renewal_with_linger_ends_no_hold(server, async_client, monkeypatch):
    lock, under_way, go = ours.Lock(async_client, "stock", timeout=30, linger=0.3), asyncio.Event(), asyncio.Event()
    await lock.acquire()
    async with lock.keep_alive():
        late(lock, monkeypatch, under_way, go.wait)
        await asyncio.wait_for(under_way.wait(), PATIENCE)
    renewals = server.calls("lock.renew")
    go.set()
    # It was under way, and comes to its end.
    await asyncio.to_thread(until, lambda: server.calls("lock.renew") > renewals, "the renewal")
    # A connection that had been cut in the middle of it would have ended the hold by now.
    await asyncio.sleep(0.8)
    assert await lock.check() == lock.fence
    await lock.release()
    assert not server.admin.exists("stock")
