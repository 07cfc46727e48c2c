package io.github.redislock;

import static org.junit.jupiter.api.Assertions.*;

import io.github.redislock.testing.Eventually;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.*;

import redis.clients.jedis.exceptions.JedisDataException;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.*;

/** The place in the queue: kept over slices and lost connections, and given up in the end. */
@Timeout(value = 60, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class PlaceTest extends ServerTest {
    /** So long that a place that is gone was given up. */
    private final LockOptions longGrace = options.withGrace(Duration.ofHours(1));

    @Test
    void aWaiterThatGetsAnErrorLeavesNoPlace() throws Exception {
        LockOptions sliced = longGrace.withSlice(Duration.ofMillis(30));
        locks.lock("a").lock();
        try (RedisLockClient client = RedisLockClient.connect(server.url(), sliced)) {
            Future<Void> waiting = awaitWaiter(() -> client.lock("a").lock());
            server.ask("ACL", "SETUSER", "default", "-lock.acquire");
            JedisDataException failed =
                    assertThrows(JedisDataException.class, () -> Other.result(waiting));
            assertTrue(failed.getMessage().startsWith("NOPERM"));
            assertEquals(0, server.waiting("a"));
        } finally {
            server.ask("ACL", "SETUSER", "default", "+lock.acquire");
        }
        locks.lock("a").unlock();
        assertFalse(server.isLocked("a"), "nothing was left to it");
    }

    @ParameterizedTest
    @EnumSource(names = {"JEDIS", "LETTUCE"})
    void aWaiterOfAClosedClientDoesNotTryToReachTheServer(Way way) throws Exception {
        LockOptions patient = longGrace.withReconnect(Duration.ofSeconds(15));
        try (FaultyProxy proxy = new FaultyProxy(server.port());
                Way.Opened closing = way.open(proxy.url(), patient)) {
            locks.lock("a").lock();
            Future<Void> waiting = awaitWaiter(() -> closing.locks.lock("a").lock());
            proxy.replyDelayMs = 200; // What gives the place up is on its way at the close.
            closing.locks.close();
            long startNanos = System.nanoTime();
            assertThrows(RuntimeException.class, () -> Other.result(waiting));
            long tookMs = (System.nanoTime() - startNanos) / 1_000_000;
            assertTrue(tookMs < 10_000, "it took " + tookMs + " ms");
            assertEquals(0, server.waiting("a"));
        }
    }

    /** The waiter has its answer while the close still waits for the one to its release. */
    @ParameterizedTest
    @EnumSource(names = {"JEDIS", "JEDIS_POOL", "LETTUCE"})
    void aGrantThatAClosingClientGivesBackIsHandedToNobody(Way way) throws Exception {
        try (FaultyProxy proxy = new FaultyProxy(server.port());
                Way.Opened closing = way.open(proxy.url(), LockOptions.defaults())) {
            RedisHold held = locks.lock("a").tryAcquire();
            Future<Void> waiting = awaitWaiter(() -> closing.locks.lock("a").acquire());
            proxy.replyDelayMs = 200;
            held.release();
            closing.locks.close();
            assertThrows(RuntimeException.class, () -> Other.result(waiting));
            assertFalse(server.isLocked("a"));
        }
    }

    @ParameterizedTest
    @ValueSource(longs = {30, 10_000})
    void aReaderThatDoesNotBecomeTheWriterGoesOnReading(long sliceMs) {
        LockOptions chosen = longGrace.withSlice(Duration.ofMillis(sliceMs));
        try (RedisLockClient reading = RedisLockClient.connect(server.url(), chosen)) {
            RedisReadWriteLock lock = reading.readWriteLock("a");
            locks.readWriteLock("a").readLock().lock();
            other.does(() -> {
                lock.readLock().lock();
                assertFalse(lock.writeLock().tryLock(200, TimeUnit.MILLISECONDS));
                assertEquals(0, server.waiting("a"));
                assertTrue(lock.readLock().isHeldByCurrentThread());
            });
            assertEquals(2, server.holders("a").size());
            interrupt(awaitWaiter(() -> lock.writeLock().lockInterruptibly()));
            assertEquals(0, server.waiting("a"));
            assertEquals(2, server.holders("a").size());
            other.does(() -> lock.readLock().unlock());
        }
    }

    @ParameterizedTest
    @CsvSource({"JEDIS, false", "JEDIS, true", "LETTUCE_FUTURES, false"})
    void aPlaceOutlivesItsConnection(Way way, boolean halfOpen) throws Exception {
        Duration slice = halfOpen ? Duration.ofMillis(300) : Duration.ofHours(1);
        LockOptions chosen = LockOptions.defaults().withSlice(slice);
        try (FaultyProxy proxy = new FaultyProxy(server.port());
                Way.Opened far = way.open(proxy.url(), chosen);
                Other second = new Other()) {
            RedisLock lock = locks.lock("a");
            lock.lock();
            Future<Held> first =
                    other.starts(() -> far.take(Way.Kind.LOCK, List.of("a"), 60_000, -1));
            awaitWaiters("a", 1);
            Future<Void> later = second.starts(() -> lock.lock());
            awaitWaiters("a", 2);
            if (halfOpen) {
                proxy.silent = true;
            } else {
                proxy.cut(400); // The next connection is slow.
            }
            awaitNobodyListens();
            lock.unlock(); // Its turn comes while nobody listens.
            proxy.silent = false;
            Held hold = Other.result(first);
            assertFalse(later.isDone());
            assertEquals(1, server.waiting("a"), "the second one waits");
            hold.release();
            Other.result(later);
            second.does(() -> lock.unlock());
        }
    }

    @Test
    void anInterruptDoesNotCostLockItsPlace() {
        RedisLock lock = locks.lock("a");
        lock.lock();
        try (Other second = new Other()) {
            Future<Void> first = awaitWaiter(() -> {
                lock.lock();
                assertTrue(Thread.interrupted());
            });
            Future<Void> later = second.starts(() -> lock.lock());
            awaitWaiters("a", 2);
            other.thread.interrupt();
            Eventually.pause(100);
            assertFalse(first.isDone());
            lock.unlock();
            Other.result(first);
            assertFalse(later.isDone());
            other.does(() -> lock.unlock());
            Other.result(later);
        }
    }

    /** To one of the places, neither by a connection that waits nor by one that is told. */
    private void awaitNobodyListens() {
        Eventually.isTrue(
                "a place of nobody",
                () -> server.absent("a") == 1
                        || server.tells("a") && server.ask("PUBSUB", "CHANNELS").equals(List.of()));
    }
}
