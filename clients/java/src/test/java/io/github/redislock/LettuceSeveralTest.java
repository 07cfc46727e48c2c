package io.github.redislock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.lettuce.core.RedisClient;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.logging.Level;
import java.util.logging.Logger;

/** Semaphores, several locks as one, guarded commands and linger, over Lettuce. */
@Timeout(value = 60, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class LettuceSeveralTest extends ServerTest {
    private final LockOptions patient = LockOptions.defaults()
            .withOnLost(lost::add)
            .withGrace(Duration.ofHours(1))
            .withSlice(Duration.ofHours(1));

    private static final Logger QUIET = Logger.getLogger("io");

    static {
        QUIET.setLevel(Level.OFF);
    }

    private RedisClient lettuce;
    private LettuceLockClient shared;

    @BeforeEach
    void connectLettuce() {
        lettuce = RedisClient.create(server.url());
        shared = LettuceLockClient.connect(lettuce, patient);
    }

    @AfterEach
    void disconnectLettuce() {
        shared.close();
        lettuce.shutdown(Duration.ZERO, Duration.ofSeconds(2));
    }

    private static <T> T result(CompletableFuture<T> future) {
        return Other.result(future);
    }

    private AsyncLock both() {
        return shared.multiLock(shared.lock("a"), shared.lock("b"));
    }

    @Test
    void permitsAreGivenInOrderOfArrivalAndNeverTooMany() {
        AsyncSemaphore three = shared.semaphore("a", 3);
        List<AsyncHold> first = List.of(
                result(three.acquire()),
                result(three.tryAcquire()).orElseThrow(),
                result(three.tryAcquire(Duration.ofSeconds(1))).orElseThrow());
        assertTrue(result(three.tryAcquire()).isEmpty());
        AtomicInteger inside = new AtomicInteger();
        List<Long> fences = new CopyOnWriteArrayList<>();
        List<CompletableFuture<Boolean>> ends = new ArrayList<>();
        for (int number = 0; number < 12; number++) {
            ends.add(three.acquire().thenCompose(permit -> {
                assertTrue(inside.incrementAndGet() <= 3);
                fences.add(permit.fence());
                Eventually.pause(30);
                inside.decrementAndGet();
                return permit.unlock();
            }));
            awaitWaiters("a", number + 1);
        }
        first.forEach(permit -> assertTrue(result(permit.unlock())));
        ends.forEach(end -> assertTrue(result(end)));
        assertEquals(12, fences.size());
        assertFalse(server.redis.exists("a"));
    }

    @Test
    void aCancelledRequestLeavesNothing() {
        AsyncHold permit = result(shared.semaphore("a", 1).acquire());
        CompletableFuture<AsyncHold> counted = shared.semaphore("a", 1).acquire();
        CompletableFuture<AsyncHold> several = both().lock();
        awaitWaiters("a", 2);
        awaitWaiters("b", 1);
        counted.cancel(false);
        several.cancel(false);
        awaitWaiters("a", 0);
        awaitWaiters("b", 0);
        assertTrue(result(permit.unlock()));
        assertFalse(server.redis.exists("a") || server.redis.exists("b"));
    }

    @Test
    void severalLocksAreTakenInOneStep() {
        AsyncHold held = result(shared.lock("b").lock());
        assertTrue(result(both().tryLock()).isEmpty());
        CompletableFuture<AsyncHold> waiting = both().lock();
        awaitWaiters("a", 1);
        assertTrue(server.holders("a").isEmpty(), "it waits and holds nothing");
        result(held.unlock());
        AsyncHold hold = result(waiting);
        assertEquals("a, b", hold.name());
        assertEquals(server.holders("a"), server.holders("b"));
        assertTrue(result(hold.check()));
        assertTrue(result(hold.unlock()));
        assertFalse(server.redis.exists("a") || server.redis.exists("b"));
    }

    @Test
    void crossingRequestsNeverBlockOneAnother() {
        AsyncLock turned = shared.multiLock(shared.lock("b"), shared.lock("a"));
        AtomicInteger inside = new AtomicInteger();
        List<CompletableFuture<Boolean>> ends = new ArrayList<>();
        for (int number = 0; number < 200; number++) {
            AsyncLock mine = number % 3 == 0 ? shared.lock("a") : number % 3 == 1 ? both() : turned;
            ends.add(mine.lock().thenCompose(hold -> {
                assertEquals(1, inside.incrementAndGet());
                inside.decrementAndGet();
                return hold.unlock();
            }));
        }
        ends.forEach(end -> assertTrue(result(end)));
    }

    @Test
    void withOneOfSeveralTheWholeIsLost() throws Exception {
        try (LettuceLockClient quick = LettuceLockClient.connect(lettuce, options)) {
            AsyncHold hold =
                    result(quick.multiLock(quick.lock("a"), quick.lock("b")).lock());
            Eventually.pause(2 * TTL_MS);
            assertTrue(hold.isHeld());
            server.redis.del("b");
            assertEquals("a, b", awaitLost().name());
            assertFalse(hold.isHeld());
            Eventually.isTrue("the rest is released", () -> !server.redis.exists("a"));
        }
    }

    @Test
    void waitersKeepTheirPlacesOverLostConnections() {
        AsyncHold held = result(shared.lock("b").lock());
        CompletableFuture<AsyncHold> several = both().lock();
        awaitWaiters("b", 1);
        CompletableFuture<AsyncHold> counted = shared.semaphore("b", 2).acquire();
        awaitWaiters("b", 2);
        server.redis.executeCommand(
                TestServer.command("CLIENT").add("KILL").add("TYPE").add("pubsub"));
        server.cutConnections();
        result(held.unlock());
        AsyncHold hold = result(several);
        assertFalse(counted.isDone());
        assertTrue(result(hold.unlock()));
        assertTrue(result(result(counted).unlock()));
    }

    @Test
    void aCommandRunsWhileTheLockIsHeld() throws Exception {
        AsyncHold hold = result(shared.lock("a").lock());
        assertEquals("OK", result(hold.exec("SET", "x", 41)));
        assertEquals(42L, result(hold.exec("INCR", "x")));
        assertEquals(List.of("42"), result(hold.exec("MGET", "x".getBytes())));
        assertNull(result(hold.exec("GET", "y")));
        server.redis.del("a");
        assertThrows(IllegalMonitorStateException.class, () -> result(hold.exec("INCR", "x")));
        assertEquals("42", server.redis.get("x"));
        assertFalse(hold.isHeld());
        assertEquals(hold.fence(), awaitLost().fence());
        assertFalse(result(hold.check()));
    }

    @Test
    void whatTheServerLacksIsNamed() throws Exception {
        try (FaultyProxy proxy = new FaultyProxy(server.port())) {
            proxy.old = true;
            RedisClient behind = RedisClient.create(proxy.url());
            try (LettuceLockClient client = LettuceLockClient.connect(behind, patient)) {
                AsyncLock several = client.multiLock(client.lock("a"), client.lock("b"));
                assertRefused(several.tryLock(), "LOCK.MACQUIRE");
                assertRefused(client.semaphore("a", 2).acquire(), "LIMIT");
            } finally {
                behind.shutdown(Duration.ZERO, Duration.ofSeconds(2));
            }
        }
        try (TestServer old = TestServer.start("redis-6.2.14")) {
            RedisClient behind = RedisClient.create(old.url());
            try (LettuceLockClient client = LettuceLockClient.connect(behind, patient)) {
                AsyncHold hold = result(client.lock("a").lock());
                assertRefused(hold.exec("PING"), "LOCK.EXEC (for Redis 7.0");
            } finally {
                behind.shutdown(Duration.ZERO, Duration.ofSeconds(2));
            }
        }
    }

    private static void assertRefused(CompletableFuture<?> future, String feature) {
        ExecutionException refused =
                assertThrows(ExecutionException.class, () -> future.get(20, TimeUnit.SECONDS));
        assertInstanceOf(UnsupportedOperationException.class, refused.getCause());
        assertTrue(refused.getCause().getMessage().contains(feature));
    }

    @Test
    void aHoldEndsSoonAfterItsProcess() throws Exception {
        try (FaultyProxy proxy = new FaultyProxy(server.port())) {
            RedisClient behind = RedisClient.create(proxy.url());
            LockOptions brief = patient.withLinger(Duration.ofMillis(100));
            try (LettuceLockClient client = LettuceLockClient.connect(behind, brief)) {
                AsyncHold hold = result(client.lock("a").lock());
                proxy.shut();
                long start = System.nanoTime();
                assertTrue(
                        result(shared.lock("a").tryLock(Duration.ofSeconds(20))).isPresent());
                long tookMs = (System.nanoTime() - start) / 1_000_000;
                assertTrue(tookMs < 10_000, "of a ttl of 30 s it took " + tookMs);
                hold.unlock();
            } finally {
                behind.shutdown(Duration.ZERO, Duration.ofSeconds(2));
            }
        }
    }

    @Test
    void aHoldThatLingersIsBoundToTheNextConnection() throws Exception {
        try (FaultyProxy proxy = new FaultyProxy(server.port())) {
            RedisClient behind = RedisClient.create(proxy.url());
            LockOptions brief = patient.withLinger(Duration.ofSeconds(5));
            try (LettuceLockClient client = LettuceLockClient.connect(behind, brief)) {
                AsyncHold hold = result(client.lock("a").lock());
                for (int turn = 0; turn < 2; turn++) {
                    proxy.cut();
                    Eventually.isTrue("its end came forward", () -> server.redis.pttl("a") < 5_001);
                    Eventually.isTrue("it has its ttl", () -> server.redis.pttl("a") > 20_000);
                }
                assertTrue(hold.isHeld());
                assertTrue(result(hold.unlock()));
            } finally {
                behind.shutdown(Duration.ZERO, Duration.ofSeconds(2));
            }
        }
        assertNull(lost.poll());
    }
}
