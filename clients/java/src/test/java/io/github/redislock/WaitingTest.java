package io.github.redislock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import redis.clients.jedis.UnifiedJedis;
import redis.clients.jedis.exceptions.JedisConnectionException;
import redis.clients.jedis.exceptions.JedisException;

import java.time.Duration;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;

/** Waiting: in line, in slices, over cut connections, until an interrupt. */
class WaitingTest extends ServerTest {
    @Test
    void aWaitIsLongerThanASliceAndThanEverySocketTimeOut() {
        try (RedisLockClient sliced =
                RedisLockClient.connect(server.url(), options.withSlice(Duration.ofMillis(50)))) {
            RedisLock lock = locks.lock("a");
            lock.lock();
            Future<Void> waiting = other.starts(() -> sliced.lock("a").lock());
            Eventually.pause(2 * TTL_MS);
            assertFalse(waiting.isDone());
            lock.unlock();
            Other.result(waiting);
            assertTrue(other.does(() -> sliced.lock("a").isHeldByCurrentThread()));
        }
    }

    @Test
    void aGrantAfterALongWaitHasItsWholeLease() throws Exception {
        RedisLock lock = locks.lock("a");
        lock.lock();
        Future<Boolean> waiting = other.starts(() -> lock.tryLock(1, TimeUnit.MINUTES));
        awaitWaiters("a", 1);
        // Longer than the ttl: counted from the asking, the lease would be over before it was
        // granted.
        Eventually.pause(2 * TTL_MS);
        lock.unlock();
        assertTrue(Other.result(waiting));
        assertTrue(other.does(() -> lock.isHeldByCurrentThread()));
    }

    @Test
    void waitsOnOverCutConnections() {
        RedisLock lock = locks.lock("a");
        lock.lock();
        Future<Void> waiting = other.starts(() -> lock.lock());
        awaitWaiters("a", 1);
        for (int turn = 0; turn < 3; turn++) {
            server.cutConnections();
            awaitWaiters("a", 1);
        }
        lock.unlock();
        Other.result(waiting);
        assertTrue(other.does(() -> lock.isHeldByCurrentThread()));
    }

    @Test
    void tryLockDoesNotTakeACutConnectionForARefusal() {
        RedisLock lock = locks.lock("a");
        lock.lock();
        lock.unlock();
        server.cutConnections();
        assertTrue(lock.tryLock());
    }

    @Test
    void aServerThatIsGoneIsSaidToBe() {
        RedisLockClient lonely;
        RedisLock lock;
        try (TestServer mortal = TestServer.start()) {
            lonely = RedisLockClient.connect(
                    mortal.url(), options.withReconnect(Duration.ofMillis(200)));
            lock = lonely.lock("a");
            lock.lock();
        }
        assertThrows(JedisConnectionException.class, lock::tryLock);
        assertThrows(RuntimeException.class, lock::unlock);
        lonely.close();
    }

    @Test
    void aShortWaitAtASilentServerIsShort() throws Exception {
        try (RedisLockClient patient = RedisLockClient.connect(server.url())) {
            RedisLock lock = patient.lock("a");
            lock.lock(); // So that there is a connection.
            lock.unlock();
            server.pause();
            long start = System.nanoTime();
            try {
                assertThrows(
                        JedisConnectionException.class,
                        () -> lock.tryLock(500, TimeUnit.MILLISECONDS));
            } finally {
                server.resume();
            }
            assertShort(start, Duration.ofMillis(500));
        }
    }

    @Test
    void aSwallowedGrantIsAskedForAgainInTime() throws Exception {
        try (SilentProxy proxy = new SilentProxy(server.port());
                RedisLockClient patient = RedisLockClient.connect(proxy.url())) {
            long start = System.nanoTime();
            assertTrue(patient.lock("a").tryLock(500, TimeUnit.MILLISECONDS));
            assertTrue(proxy.hasSwallowed());
            assertShort(start, Duration.ofMillis(500));
            patient.lock("a").unlock();
            assertFalse(server.redis.exists("a"));
        }
    }

    /** No longer than was said, the time to reconnect, and a little for a busy machine. */
    private static void assertShort(long startNanos, Duration wait) {
        Duration most = wait.plus(LockOptions.defaults().reconnect()).plusMillis(500);
        Duration took = Duration.ofNanos(System.nanoTime() - startNanos);
        assertTrue(took.compareTo(most) < 0, "it took " + took);
    }

    @ParameterizedTest
    @ValueSource(strings = {"lockInterruptibly", "tryLock"})
    void anInterruptEndsTheWait(String method) {
        RedisLock lock = locks.lock("a");
        lock.lock();
        Future<Void> waiting = other.starts(() -> {
            if (method.equals("tryLock")) {
                lock.tryLock(1, TimeUnit.DAYS);
            } else {
                lock.lockInterruptibly();
            }
        });
        awaitWaiters("a", 1);
        long start = System.nanoTime();
        other.thread.interrupt();
        ExecutionException failed =
                assertThrows(ExecutionException.class, () -> waiting.get(20, TimeUnit.SECONDS));
        assertEquals(InterruptedException.class, failed.getCause().getClass());
        assertTrue(
                System.nanoTime() - start < options.slice().toNanos() / 2,
                "not only at the end of a slice");
        assertEquals(0, server.waiting("a"), "it has left the line");
        assertFalse(other.does(() -> Thread.currentThread().isInterrupted()));
        lock.unlock();
        assertFalse(lock.isLocked(), "nothing was left to it");
    }

    @Test
    void anInterruptBeforeIsSeenAtOnce() {
        assertThrows(InterruptedException.class, () -> {
            Thread.currentThread().interrupt();
            locks.lock("a").lockInterruptibly();
        });
        assertFalse(Thread.currentThread().isInterrupted());
        assertFalse(locks.lock("a").isLocked());
    }

    @Test
    void lockWaitsOnWhenInterruptedAndRemembersIt() {
        RedisLock lock = locks.lock("a");
        lock.lock();
        Future<Boolean> waiting = other.starts(() -> {
            lock.lock();
            boolean flag = Thread.interrupted();
            return flag && lock.isHeldByCurrentThread();
        });
        awaitWaiters("a", 1);
        other.thread.interrupt();
        Eventually.pause(100);
        assertFalse(waiting.isDone());
        lock.unlock();
        assertTrue(Other.result(waiting));
    }

    @Test
    void anInterruptedThreadCanUnlock() {
        RedisLock lock = locks.lock("a");
        lock.lock();
        Thread.currentThread().interrupt();
        lock.unlock();
        assertTrue(Thread.interrupted());
        assertFalse(lock.isLocked());
    }

    @Test
    void aClosedClientWaitsNoMore() {
        server.redis.executeCommand(
                TestServer.command("LOCK.ACQUIRE").key("a").add("stranger").add(60_000));
        Future<Void> waiting = other.starts(() -> locks.lock("a").lock());
        awaitWaiters("a", 1);
        locks.close();
        awaitWaiters("a", 0);
        assertThrows(JedisException.class, () -> Other.result(waiting));
    }

    @Test
    void worksWithAJedisOfOnesOwn() {
        try (UnifiedJedis jedis = TestServer.client(server.port(), 3)) {
            RedisLockClient mine =
                    JedisLocks.over(jedis, options.withSlice(Duration.ofMillis(100)));
            RedisLock lock = mine.lock("a");
            lock.lock();
            Future<Void> waiting = other.starts(() -> lock.lockInterruptibly());
            awaitWaiters("a", 1);
            other.thread.interrupt();
            assertThrows(ExecutionException.class, () -> waiting.get(20, TimeUnit.SECONDS));
            lock.unlock();
            mine.close();
            assertEquals("PONG", jedis.ping());
        }
    }
}
