package io.github.redislock;

import static org.junit.jupiter.api.Assertions.*;

import io.github.redislock.testing.Eventually;
import io.github.redislock.testing.TestServer;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;

import redis.clients.jedis.exceptions.JedisConnectionException;

import java.time.Duration;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;

/** Waiting: in line, in slices, over cut connections, until an interrupt. */
class WaitingTest extends ServerTest {
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

    @ParameterizedTest
    @EnumSource(names = {"JEDIS", "LETTUCE"})
    void aShortWaitAtASilentServerIsShort(Way way) throws Exception {
        try (Way.Opened patient = way.open(server.url(), LockOptions.defaults())) {
            RedisLock lock = patient.locks.lock("a");
            assertTrue(lock.tryLock()); // So that Jedis has a connection; Lettuce makes another.
            lock.unlock();
            server.pause();
            long start = System.nanoTime();
            try {
                assertThrows(
                        RuntimeException.class, () -> lock.tryLock(500, TimeUnit.MILLISECONDS));
            } finally {
                server.resume();
            }
            assertShort(start, Duration.ofMillis(500));
        }
    }

    /** A server that answered in between was there. */
    @Test
    void aWaitOutlastsConnectionsThatAreLostFarApart() throws Exception {
        LockOptions endless = LockOptions.defaults().withSlice(Duration.ofHours(1));
        try (RedisLockClient patient = RedisLockClient.connect(server.url(), endless)) {
            locks.lock("a").lock();
            Future<Void> waiting = awaitWaiter(() -> patient.lock("a").lock());
            for (int cuts = 0; cuts < 2; cuts++) {
                server.cutConnections();
                // Longer than a server may be out of reach.
                Eventually.pause(endless.reconnect().toMillis() + 300);
            }
            locks.lock("a").unlock();
            Other.result(waiting);
        }
    }

    /** No longer than was said, the time to reconnect, and some for a busy machine: no slice. */
    private static void assertShort(long startNanos, Duration wait) {
        Duration most = wait.plus(LockOptions.defaults().reconnect()).plusSeconds(4);
        Duration took = Duration.ofNanos(System.nanoTime() - startNanos);
        assertTrue(took.compareTo(most) < 0, "it took " + took);
    }

    @ParameterizedTest
    @ValueSource(strings = {"lockInterruptibly", "tryLock", "permit", "several"})
    void anInterruptEndsTheWait(String method) {
        RedisLock lock = locks.lock("a");
        RedisHold hold = lock.tryAcquire();
        Future<Void> waiting = awaitWaiter(() -> {
            switch (method) {
                case "tryLock" -> lock.tryLock(1, TimeUnit.DAYS);
                case "permit" -> locks.semaphore("a", 1).acquire();
                case "several" -> locks.multiLock(lock, locks.lock("b")).lockInterruptibly();
                default -> lock.lockInterruptibly();
            }
        });
        long start = System.nanoTime();
        interrupt(waiting);
        assertTrue(
                System.nanoTime() - start < options.slice().toNanos() / 2,
                "not only at the end of a slice");
        assertEquals(0, server.waiting("a") + server.waiting("b"), "it has left the line");
        assertFalse(other.does(() -> Thread.currentThread().isInterrupted()));
        hold.release();
        assertFalse(server.isLocked("a") || server.isLocked("b"), "nothing was left to it");
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
    void anInterruptedThreadCanUnlock() {
        RedisLock lock = locks.lock("a");
        lock.lock();
        Thread.currentThread().interrupt();
        lock.unlock();
        assertTrue(Thread.interrupted());
        assertFalse(lock.isLocked());
    }
}
