package io.github.redislock;

import static org.junit.jupiter.api.Assertions.*;

import io.github.redislock.testing.Eventually;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.TimeUnit;

/** What locks, multi-locks, permits, holds that belong to no thread, and jobs owe. */
class RedisLockTest extends ServerTest {
    private static final Duration LEAST = Duration.ofSeconds(30);

    private static RedisMultiLock both(RedisLockClient client) {
        return client.multiLock(client.lock("a"), client.lock("b"));
    }

    private void assertAllFree() {
        assertFalse(server.isLocked("a") || server.isLocked("b"));
    }

    @Test
    void everyKindIsReentrantThroughEachViewAndOnlyItsHolderUnlocks() {
        RedisMultiLock turned = locks.multiLock(locks.lock("b"), locks.lock("a"));
        RedisReadWriteLock sides = locks.readWriteLock("a");
        for (List<ThreadLock> views : List.<List<ThreadLock>>of(
                List.of(locks.lock("a"), locks.lock("a")),
                List.of(both(locks), turned),
                List.of(sides.readLock(), locks.readWriteLock("a").readLock()),
                List.of(sides.writeLock(), locks.lock("a")))) {
            ThreadLock lock = views.get(0);
            ThreadLock same = views.get(1);
            assertThrows(IllegalMonitorStateException.class, lock::unlock, "nobody holds it");
            lock.lock();
            assertTrue(same.tryLock());
            assertEquals(2, lock.getHoldCount());
            assertEquals(lock.fence(), same.fence());
            same.unlock();
            assertTrue(lock.isHeldByCurrentThread() && lock.check());
            other.does(() -> {
                assertFalse(lock.isHeldByCurrentThread() || lock.check());
                assertFalse(locks.lock("a").tryLock(), "one of two is not enough");
                assertThrows(IllegalMonitorStateException.class, lock::unlock);
                assertThrows(IllegalMonitorStateException.class, lock::fence);
            });
            lock.unlock();
            assertEquals(0, same.getHoldCount());
            assertThrows(IllegalMonitorStateException.class, same::unlock, "once too often");
            assertAllFree();
        }
    }

    @Test
    void tellsOfTheServersView() throws Exception {
        RedisLock lock = locks.lock("a");
        RedisSemaphore two = locks.semaphore("b", 2);
        assertFalse(lock.isLocked());
        assertEquals(-2, lock.remainTimeToLive());
        assertEquals(2, two.availablePermits());
        other.does(() -> lock.lock(1, TimeUnit.HOURS));
        assertTrue(lock.isLocked());
        long leftMs = lock.remainTimeToLive();
        assertTrue(leftMs > 3_500_000 && leftMs <= 3_600_000, leftMs + " ms");
        try (RedisHold permit = two.acquire(TTL_MS, TimeUnit.MILLISECONDS);
                RedisHold last = two.tryAcquire(1, TimeUnit.SECONDS)) {
            assertTrue(last.fence() > permit.fence());
            assertEquals(0, two.availablePermits());
        }
        assertTrue(lock.forceUnlock());
        assertFalse(lock.isLocked() || lock.forceUnlock());
    }

    @Test
    void whatCannotBeIsRefused() {
        RedisLock a = locks.lock("a");
        Duration below = Duration.ofMillis(-1);
        a.lock();
        RedisHold hold = locks.lock("b").tryAcquire();
        for (Other.Action wrong : List.<Other.Action>of(
                () -> a.lock(0, TimeUnit.SECONDS),
                () -> a.lock(1, TimeUnit.MICROSECONDS),
                () -> a.renew(Duration.ZERO),
                () -> hold.release(below),
                () -> locks.semaphore("a", 0),
                () -> locks.multiLock(a, a),
                () -> locks.multiLock(),
                () -> locks.runOnce("c", LEAST, MINUTE, job -> {}))) {
            assertThrows(IllegalArgumentException.class, wrong::run);
        }
        assertThrows(UnsupportedOperationException.class, a::newCondition);
        assertTrue(a.check() && hold.check());
        locks.close();
        assertThrows(IllegalStateException.class, a::tryLock);
    }

    @Test
    void aThreadDoesNotWaitForItself() {
        RedisLock a = locks.lock("a");
        RedisMultiLock both = both(locks);
        both.lock();
        assertThrows(IllegalStateException.class, a::lock);
        assertFalse(a.isHeldByCurrentThread());
        both.unlock();
        a.lock();
        assertThrows(IllegalStateException.class, both::lock);
    }

    @Test
    void oneOfSeveralThatIsTakenAwayTakesTheOthersAlong() {
        RedisMultiLock both = both(locks);
        both.lock();
        assertTrue(locks.lock("a").forceUnlock());
        assertFalse(both.isHeldByCurrentThread());
        assertAllFree();
    }

    /** As by a guard, while a token holds them all by a grant that nobody saw. */
    @Test
    void oneThatIsToldNoAtOncePauses() throws Exception {
        RedisLockClient client = behind(options);
        assertTrue(both(client).tryLock(1, TimeUnit.SECONDS)); // It connects.
        both(client).unlock();
        proxy.answer("LOCK.MACQUIRE", "$-1\r\n", Integer.MAX_VALUE);
        assertFalse(both(client).tryLock(1, TimeUnit.SECONDS));
        int asked = Integer.MAX_VALUE - proxy.toAnswer.get();
        assertTrue(asked > 2 && asked < 30, asked + " times");
    }

    @Test
    void aHoldWithoutALeaseOutlivesItsThread() throws Exception {
        RedisHold hold = other.does(() -> locks.lock("a").acquire());
        RedisHold permit = other.does(() -> locks.semaphore("b", 1).acquire());
        assertEquals(0, other.does(() -> locks.lock("a").getHoldCount()));
        other.close();
        other.thread.join();
        Eventually.pause(3 * TTL_MS);
        for (RedisHold each : List.of(hold, permit)) {
            assertTrue(each.isHeld() && each.check());
            each.release();
            each.close(); // Nothing more: it was given back.
        }
        assertAllFree();
        assertNull(lost.poll());
    }

    @Test
    void aThreadSetsItsLeaseAnew() throws Exception {
        RedisLock lock = locks.lock("a");
        assertThrows(IllegalMonitorStateException.class, () -> lock.renew(MINUTE));
        lock.lock(); // Renewed by the watchdog until it is shorter.
        assertTrue(lock.renew(MINUTE));
        assertTrue(server.leftMs("a") > 50_000);
        RedisHold hold = locks.lock("b").tryAcquire();
        assertTrue(lock.renew(Duration.ofMillis(1_500)) && hold.renew(Duration.ofMillis(1_500)));
        assertTrue(server.leftMs("a") <= 1_500);
        awaitLost();
        awaitLost();
        assertFalse(lock.isHeldByCurrentThread() || hold.isHeld() || hold.renew(MINUTE));
        assertEquals(Duration.ZERO, hold.remaining());
        awaitFree("a");
        lock.lock();
        server.ask("DEL", "a");
        assertFalse(lock.renew(MINUTE));
    }

    @Test
    void aReleaseKeepsTheLockForItsLeastTime() throws Exception {
        RedisHold hold = both(locks).tryAcquire(1, 60, TimeUnit.SECONDS);
        hold.release(LEAST);
        assertFalse(hold.isHeld());
        assertItLastsFor(LEAST);
        assertTrue(server.leftMs("b") > 20_000);
        assertNull(locks.lock("a").tryAcquire());
        server.ask("DEL", "a", "b");

        RedisHold fromNow = locks.lock("a").tryAcquire(1, 60, TimeUnit.SECONDS);
        fromNow.releaseIn(LEAST);
        fromNow.releaseIn(Duration.ofMillis(1)); // Nothing more: it was given back.
        assertItLastsFor(LEAST);
        locks.lock("b").tryAcquire(1, 2, TimeUnit.SECONDS).releaseIn(LEAST);
        assertTrue(server.leftMs("b") <= 2_000, "its lease ends it earlier");
        server.ask("DEL", "b");
        RedisHold taken = locks.lock("b").tryAcquire();
        server.ask("DEL", "a", "b");
        assertThrows(IllegalMonitorStateException.class, () -> taken.releaseIn(LEAST));

        RedisLock lock = locks.lock("a");
        lock.lock(60, TimeUnit.SECONDS);
        lock.lock(60, TimeUnit.SECONDS);
        lock.unlock(LEAST);
        assertTrue(server.leftMs("a") > 30_000);
        lock.unlock(LEAST);
        assertItLastsFor(LEAST);
    }

    @Test
    void aJobHasAHoldThatLastsAsLongThoughItIsClosedOrTheJobFails() {
        assertTrue(locks.runOnce("a", MINUTE, LEAST, hold -> {
            assertEquals(List.of(hold.id()), server.holders("a"));
            assertEquals(1L, hold.exec("INCR", "x"));
            assertFalse(locks.runOnce("a", MINUTE, LEAST, no -> server.ask("INCR", "x")));
            hold.close();
        }));
        assertEquals("1", server.ask("GET", "x"));
        assertItLastsFor(LEAST);
        // Kotlin and others throw checked exceptions, too.
        Exception failure = new InterruptedException();
        Executable failing = () -> locks.runOnce("b", MINUTE, LEAST, hold -> {
            RedisLockTest.<RuntimeException>throwAny(failure);
        });
        assertSame(failure, assertThrows(Exception.class, failing));
        assertTrue(server.leftMs("b") > 20_000);
    }

    @SuppressWarnings("unchecked")
    private static <E extends Exception> void throwAny(Exception failure) throws E {
        throw (E) failure;
    }

    @Test
    void aJobThatTakesLongerThanAtMostIsTold() throws Exception {
        Duration most = Duration.ofMillis(500);
        assertTrue(locks.runOnce(
                "a", most, most, hold -> Eventually.isTrue("it is over", () -> !hold.isHeld())));
        assertEquals("a", awaitLost().name());
    }
}
