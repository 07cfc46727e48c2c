package io.github.redislock;

import static org.junit.jupiter.api.Assertions.*;

import io.github.redislock.testing.Eventually;

import org.junit.jupiter.api.Test;

import java.time.Duration;
import java.util.concurrent.TimeUnit;

/** Holds that belong to no thread, leases set anew, and releases that wait. */
class HoldTest extends ServerTest {
    private static final Duration MINUTE = Duration.ofMinutes(1);
    private static final Duration LEAST = Duration.ofSeconds(30);

    @Test
    void aHoldWithoutALeaseOutlivesItsThread() throws Exception {
        RedisHold hold = other.does(() -> locks.lock("a").acquire());
        RedisHold permit = other.does(() -> locks.semaphore("b", 1).acquire());
        assertEquals(0, other.does(() -> locks.lock("a").getHoldCount()));
        other.close();
        other.thread.join();
        Eventually.pause(3 * TTL_MS);
        for (RedisHold each : new RedisHold[] {hold, permit}) {
            assertTrue(each.isHeld() && each.check());
            each.release();
            each.close(); // Nothing more: it was given back.
            assertFalse(server.isLocked(each.name()));
        }
        assertNull(lost.poll());
    }

    @Test
    void aLeaseIsMadeShorter() throws Exception {
        // Renewed by the watchdog until then.
        RedisHold hold = locks.lock("a").acquire();
        assertTrue(hold.renew(Duration.ofMillis(1_500)));
        assertTrue(server.leftMs("a") <= 1_500);
        assertEquals(hold.fence(), awaitLost().fence());
        assertFalse(hold.isHeld());
        assertEquals(Duration.ZERO, hold.remaining());
        assertFalse(hold.renew(MINUTE));
        Eventually.isTrue("it is free", () -> !server.isLocked("a"));
    }

    @Test
    void aThreadSetsItsLeaseAnew() {
        RedisLock lock = locks.lock("a");
        assertThrows(IllegalMonitorStateException.class, () -> lock.renew(MINUTE));
        lock.lock();
        assertTrue(lock.renew(MINUTE));
        assertTrue(server.leftMs("a") > 50_000);
        assertThrows(
                IllegalMonitorStateException.class, () -> other.does(() -> lock.renew(MINUTE)));
        assertThrows(IllegalArgumentException.class, () -> lock.renew(Duration.ZERO));
        server.ask("DEL", "a");
        assertFalse(lock.renew(MINUTE));
        assertFalse(lock.isHeldByCurrentThread());
    }

    @Test
    void aReleaseKeepsTheLockForItsLeastTime() throws Exception {
        RedisMultiLock both = locks.multiLock(locks.lock("a"), locks.lock("b"));
        RedisHold hold = both.tryAcquire(1, 60, TimeUnit.SECONDS);
        hold.release(LEAST);
        assertFalse(hold.isHeld());
        assertItLastsFor(LEAST);
        assertTrue(server.leftMs("b") > 20_000);
        assertNull(locks.lock("a").tryAcquire());
    }

    @Test
    void aReleaseAfterTheLeastTimeIsOneAtOnce() throws Exception {
        RedisHold hold = locks.lock("a").acquire();
        Eventually.pause(30);
        hold.release(Duration.ofMillis(20));
        assertFalse(server.isLocked("a"));
        assertThrows(IllegalArgumentException.class, () -> hold.release(Duration.ofMillis(-1)));
    }

    @Test
    void aReleaseMayCountFromNow() throws Exception {
        RedisHold hold = locks.lock("a").tryAcquire(1, 60, TimeUnit.SECONDS);
        hold.releaseIn(LEAST);
        assertFalse(hold.isHeld());
        hold.releaseIn(Duration.ofMillis(1)); // Nothing more: it was given back.
        assertTrue(server.leftMs("a") > 20_000 && server.leftMs("a") < 40_000);
        RedisHold taken = locks.lock("b").tryAcquire();
        server.ask("DEL", "b");
        assertThrows(IllegalMonitorStateException.class, () -> taken.releaseIn(LEAST));
    }

    @Test
    void theLastUnlockKeepsTheLockForItsLeastTime() {
        RedisLock lock = locks.lock("a");
        lock.lock(60, TimeUnit.SECONDS);
        lock.lock(60, TimeUnit.SECONDS);
        lock.unlock(LEAST);
        assertTrue(server.leftMs("a") > 30_000);
        lock.unlock(LEAST);
        assertItLastsFor(LEAST);
        assertThrows(IllegalMonitorStateException.class, lock::unlock);
    }

    @Test
    void permitsThatNobodyHoldsAreCounted() throws Exception {
        RedisSemaphore two = locks.semaphore("a", 2);
        assertEquals(2, two.availablePermits());
        RedisHold permit = two.acquire(TTL_MS, TimeUnit.MILLISECONDS);
        assertEquals(1, two.availablePermits());
        try (RedisHold last = two.tryAcquire(1, TimeUnit.SECONDS)) {
            assertTrue(last.fence() > permit.fence());
            assertNull(two.tryAcquire());
            assertEquals(0, two.availablePermits());
        }
        assertThrows(IllegalArgumentException.class, () -> locks.semaphore("a", 0));
    }
}
