package io.github.redislock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;

import java.time.Duration;
import java.util.concurrent.TimeUnit;

/** Holds that belong to no thread, leases set anew, and releases that wait. */
class HoldTest extends ServerTest {
    private static final Duration MINUTE = Duration.ofMinutes(1);

    @Test
    void anyThreadGivesAHoldBack() throws Exception {
        RedisHold hold = locks.lock("a").acquire();
        assertTrue(hold.fence() > 0);
        assertNull(locks.lock("a").tryAcquire());
        assertEquals(0, locks.lock("a").getHoldCount());
        other.does(() -> hold.release());
        assertFalse(server.redis.exists("a"));
        try (RedisHold next = locks.lock("a").tryAcquire()) {
            assertTrue(next.fence() > hold.fence());
        }
    }

    @Test
    void aHoldWithoutALeaseOutlivesItsThread() throws Exception {
        Other brief = new Other();
        try (RedisLockClient longer = RedisLockClient.connect(
                server.url(), LockOptions.defaults().withTtl(Duration.ofSeconds(2)))) {
            RedisHold hold = brief.does(() -> longer.lock("a").acquire());
            brief.close();
            brief.thread.join();
            Eventually.pause(3_000);
            assertTrue(hold.check());
            hold.release();
        }
    }

    @Test
    void aLeaseIsMadeLonger() throws Exception {
        try (RedisHold hold = locks.lock("a").acquire(TTL_MS, TimeUnit.MILLISECONDS)) {
            assertTrue(hold.renew(MINUTE));
            assertTrue(hold.remaining().toSeconds() >= 50);
            assertTrue(server.redis.pttl("a") > 50_000);
            assertTrue(hold.check());
        }
        assertTrue(lost.isEmpty());
    }

    @Test
    void aLeaseIsMadeShorter() throws Exception {
        // Renewed by the watchdog until then.
        RedisHold hold = locks.lock("a").acquire();
        assertTrue(hold.renew(Duration.ofMillis(300)));
        assertTrue(server.redis.pttl("a") <= 300);
        assertEquals(hold.fence(), awaitLost().fence());
        assertFalse(hold.isHeld());
        assertEquals(Duration.ZERO, hold.remaining());
        assertFalse(hold.renew(MINUTE));
        Eventually.isTrue("it is free", () -> !server.redis.exists("a"));
    }

    @Test
    void aThreadSetsItsLeaseAnew() {
        RedisLock lock = locks.lock("a");
        assertThrows(IllegalMonitorStateException.class, () -> lock.renew(MINUTE));
        lock.lock();
        assertTrue(lock.renew(MINUTE));
        assertTrue(server.redis.pttl("a") > 50_000);
        assertThrows(
                IllegalMonitorStateException.class, () -> other.does(() -> lock.renew(MINUTE)));
        assertThrows(IllegalArgumentException.class, () -> lock.renew(Duration.ZERO));
        server.redis.del("a");
        assertFalse(lock.renew(MINUTE));
        assertFalse(lock.isHeldByCurrentThread());
    }

    @Test
    void aReleaseKeepsTheLockForItsLeastTime() throws Exception {
        RedisHold hold = locks.lock("a").tryAcquire(0, 60, TimeUnit.SECONDS);
        hold.release(Duration.ofSeconds(30));
        assertFalse(hold.isHeld());
        long leftMs = server.redis.pttl("a");
        assertTrue(leftMs > 20_000 && leftMs <= 30_000, "held for " + leftMs + " ms more");
        assertNull(locks.lock("a").tryAcquire());
        hold.release(); // Nothing more: it was given back.
    }

    @Test
    void aReleaseAfterTheLeastTimeIsOneAtOnce() throws Exception {
        RedisHold hold = locks.lock("a").acquire();
        Eventually.pause(30);
        hold.release(Duration.ofMillis(20));
        assertFalse(server.redis.exists("a"));
        assertThrows(IllegalArgumentException.class, () -> hold.release(Duration.ofMillis(-1)));
    }

    @Test
    void theLastUnlockKeepsTheLockForItsLeastTime() {
        RedisLock lock = locks.lock("a");
        lock.lock(60, TimeUnit.SECONDS);
        lock.lock(60, TimeUnit.SECONDS);
        lock.unlock(Duration.ofSeconds(30));
        assertTrue(server.redis.pttl("a") > 30_000);
        lock.unlock(Duration.ofSeconds(30));
        long leftMs = server.redis.pttl("a");
        assertTrue(leftMs > 20_000 && leftMs <= 30_000, "held for " + leftMs + " ms more");
        assertThrows(IllegalMonitorStateException.class, lock::unlock);
    }

    @Test
    void severalLocksAreOneHold() throws Exception {
        RedisMultiLock both = locks.multiLock(locks.lock("a"), locks.lock("b"));
        RedisHold hold = both.tryAcquire(1, 60, TimeUnit.SECONDS);
        assertNotNull(hold);
        assertTrue(hold.renew(MINUTE));
        hold.release(Duration.ofSeconds(20));
        assertTrue(server.redis.pttl("a") > 10_000 && server.redis.pttl("b") > 10_000);
    }
}
