package io.github.redislock;

import static org.junit.jupiter.api.Assertions.*;

import org.junit.jupiter.api.Test;

import java.util.concurrent.TimeUnit;

/** What every Lock owes. */
class RedisLockTest extends ServerTest {
    @Test
    void isReentrantThroughEveryViewOfItsName() {
        RedisLock lock = locks.lock("a");
        lock.lock();
        long fence = lock.fence();
        assertTrue(locks.lock("a").tryLock());
        assertEquals(2, lock.getHoldCount());
        assertEquals(fence, locks.lock("a").fence());
        lock.unlock();
        assertTrue(lock.isHeldByCurrentThread());
        assertFalse(other.does(() -> lock.tryLock()), "one of two is not enough");
        lock.unlock();
        assertFalse(lock.isHeldByCurrentThread());
        assertEquals(0, lock.getHoldCount());
        assertTrue(other.does(() -> lock.tryLock()));
    }

    @Test
    void onlyTheHolderUnlocksAndHasTheFence() {
        RedisLock lock = locks.lock("a");
        assertThrows(IllegalMonitorStateException.class, lock::unlock, "nobody holds it");
        lock.lock();
        assertThrows(IllegalMonitorStateException.class, () -> other.does(() -> lock.unlock()));
        assertThrows(IllegalMonitorStateException.class, () -> other.does(() -> lock.fence()));
        assertThrows(IllegalMonitorStateException.class, () -> other.does(() -> lock.exec("PING")));
        assertTrue(lock.isHeldByCurrentThread() && lock.check());
        assertFalse(other.does(() -> lock.isHeldByCurrentThread() || lock.check()));
        lock.unlock();
        assertThrows(IllegalMonitorStateException.class, lock::unlock, "once too often");
    }

    @Test
    void tryLockWaitsForItsTimeAndNoLonger() throws InterruptedException {
        RedisLock lock = locks.lock("a");
        other.does(() -> lock.lock());
        long start = System.nanoTime();
        assertFalse(lock.tryLock(200, TimeUnit.MILLISECONDS));
        long tookMs = (System.nanoTime() - start) / 1_000_000;
        assertTrue(tookMs >= 200 && tookMs < 2_000, tookMs + " ms");
        assertEquals(0, server.waiting("a"));
    }

    @Test
    void tellsOfTheServersView() {
        RedisLock lock = locks.lock("a");
        assertFalse(lock.isLocked());
        assertEquals(-2, lock.remainTimeToLive());
        other.does(() -> lock.lock(1, TimeUnit.HOURS));
        assertTrue(lock.isLocked());
        long leftMs = lock.remainTimeToLive();
        assertTrue(leftMs > 3_500_000 && leftMs <= 3_600_000, leftMs + " ms");
        assertTrue(lock.forceUnlock());
        assertFalse(lock.isLocked());
        assertFalse(lock.forceUnlock());
    }

    @Test
    void hasNoConditions() {
        assertThrows(UnsupportedOperationException.class, locks.lock("a")::newCondition);
    }

    @Test
    void aClosedClientGivesNothing() {
        RedisLock lock = locks.lock("a");
        locks.close();
        assertThrows(IllegalStateException.class, lock::tryLock);
    }

    @Test
    void refusesLeasesThatAreNone() {
        assertThrows(
                IllegalArgumentException.class, () -> locks.lock("a").lock(0, TimeUnit.SECONDS));
        assertThrows(
                IllegalArgumentException.class,
                () -> locks.lock("a").lock(1, TimeUnit.MICROSECONDS));
    }
}
