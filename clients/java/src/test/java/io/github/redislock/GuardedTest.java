package io.github.redislock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

import redis.clients.jedis.exceptions.JedisConnectionException;
import redis.clients.jedis.exceptions.JedisDataException;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

/** Commands that run only while a lock is held, and jobs that run once. */
@Timeout(value = 60, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class GuardedTest extends ServerTest {
    @Test
    void aCommandRunsWhileTheLockIsHeld() {
        RedisLock lock = locks.lock("a");
        assertThrows(IllegalMonitorStateException.class, () -> lock.exec("SET", "x", "1"));
        lock.lock();
        assertEquals("OK", lock.exec("SET", "x", 41));
        assertEquals(42L, lock.exec("INCR", "x"));
        assertEquals(List.of("42"), lock.exec("MGET", "x"));
        assertNull(lock.exec("GET", "y"));
        assertThrows(JedisDataException.class, () -> lock.exec("LPUSH", "x", "1"));
        assertTrue(lock.isHeldByCurrentThread());
        lock.unlock();
    }

    @Test
    void theServerRefusesTheCommandOfALateOwner() throws Exception {
        RedisLock lock = locks.lock("a");
        lock.lock();
        long fence = lock.fence();
        server.redis.del("a");
        assertThrows(IllegalMonitorStateException.class, () -> lock.exec("SET", "x", "1"));
        assertFalse(server.redis.exists("x"));
        assertFalse(lock.isHeldByCurrentThread());
        assertEquals(fence, awaitLost().fence());
    }

    @Test
    void aLostConnectionIsSaidAndNothingRunsTwice() throws Exception {
        try (FaultyProxy proxy = new FaultyProxy(server.port());
                RedisLockClient client = RedisLockClient.connect(proxy.url(), options)) {
            RedisLock lock = client.lock("a");
            lock.lock();
            proxy.silent = true;
            assertThrows(JedisConnectionException.class, () -> lock.exec("INCR", "x"));
            assertEquals("1", server.redis.get("x"));
            proxy.silent = false;
            Eventually.isTrue("it is held", lock::check);
            lock.unlock();
        }
    }

    @Test
    void theServerIsAskedWhetherALockIsHeld() throws Exception {
        RedisLock lock = locks.lock("a");
        assertFalse(lock.check());
        lock.lock();
        assertTrue(lock.check());
        server.cutConnections();
        assertTrue(lock.check());
        assertFalse(other.does(() -> lock.check()));
        server.redis.del("a");
        assertFalse(lock.check());
        assertFalse(lock.isHeldByCurrentThread());
        awaitLost();
    }

    @Test
    void aServerWithoutItIsNamed() {
        try (TestServer old = TestServer.start("redis-6.2.14");
                RedisLockClient client = RedisLockClient.connect(old.url(), options)) {
            RedisLock lock = client.lock("a");
            lock.lock();
            Exception told =
                    assertThrows(UnsupportedOperationException.class, () -> lock.exec("PING"));
            assertTrue(told.getMessage().contains("LOCK.EXEC (for Redis 7.0"), told.getMessage());
            assertTrue(lock.check());
            lock.unlock();
        }
    }

    @Test
    void aJobRunsOnce() {
        AtomicInteger runs = new AtomicInteger();
        Duration most = Duration.ofSeconds(20);
        Duration least = Duration.ofMillis(1_500);
        long start = System.nanoTime();
        boolean ran = locks.runOnce("a", most, least, hold -> {
            assertEquals(List.of(hold.id()), server.holders("a"));
            assertEquals(1L, hold.exec("INCR", "x"));
            assertFalse(locks.runOnce("a", most, least, no -> runs.addAndGet(100)));
            runs.incrementAndGet();
            hold.close(); // It still lasts as long.
        });
        assertTrue(ran);
        assertFalse(locks.runOnce("a", most, least, no -> runs.addAndGet(100)));
        assertTrue(server.redis.pttl("a") <= 1_500);
        Eventually.isTrue("it is over", () -> !server.redis.exists("a"));
        assertTrue(System.nanoTime() - start >= TimeUnit.MILLISECONDS.toNanos(1_490));
        assertEquals(1, runs.get());
        assertTrue(locks.runOnce("a", most, Duration.ZERO, hold -> runs.incrementAndGet()));
        assertFalse(server.redis.exists("a"));
        assertEquals(2, runs.get());
    }

    @Test
    void aJobThatFailsIsNotRunAgainEither() {
        Duration most = Duration.ofMinutes(1);
        RuntimeException failure = new IllegalArgumentException("the job");
        RuntimeException told = assertThrows(
                IllegalArgumentException.class,
                () -> locks.runOnce("a", most, Duration.ofSeconds(30), hold -> {
                    throw failure;
                }));
        assertEquals(failure, told);
        long leftMs = server.redis.pttl("a");
        assertTrue(leftMs > 20_000 && leftMs <= 30_000, "it ends after " + leftMs);
    }

    @Test
    void aJobThatTakesLongerThanAtMostIsTold() throws Exception {
        assertTrue(locks.runOnce(
                "a",
                Duration.ofMillis(500),
                Duration.ofMillis(500),
                hold -> Eventually.isTrue("it is over", () -> !hold.isHeld())));
        assertEquals("a", awaitLost().name());
        assertThrows(
                IllegalArgumentException.class,
                () -> locks.runOnce("a", Duration.ofMillis(1), Duration.ofMillis(2), hold -> {}));
    }

    @Test
    void aJobDoesNotRunAtAServerOf01() throws Exception {
        try (FaultyProxy proxy = new FaultyProxy(server.port())) {
            proxy.old = true;
            try (RedisLockClient client = RedisLockClient.connect(proxy.url(), options)) {
                Duration minute = Duration.ofMinutes(1);
                Exception told = assertThrows(
                        UnsupportedOperationException.class,
                        () -> client.runOnce("a", minute, minute, hold -> lost.add(null)));
                assertTrue(told.getMessage().contains("ATLEAST"), told.getMessage());
            }
        }
        assertFalse(server.redis.exists("a"));
    }

    @Test
    void theEndOfAJobIsSentAgain() throws Exception {
        Duration most = Duration.ofMinutes(1);
        assertTrue(
                locks.runOnce("a", most, Duration.ofSeconds(30), hold -> server.cutConnections()));
        assertTrue(server.redis.pttl("a") <= 30_000);
    }
}
