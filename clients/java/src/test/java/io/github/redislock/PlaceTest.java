package io.github.redislock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.exceptions.JedisException;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.logging.Handler;
import java.util.logging.LogRecord;
import java.util.logging.Logger;

/** The place in the queue: kept over slices and lost connections, and given up in the end. */
@Timeout(value = 60, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class PlaceTest extends ServerTest {
    /** So long that a place that is gone was given up. */
    private final LockOptions longGrace = options.withGrace(Duration.ofHours(1));

    @Test
    void aClientAtItsDefaultsAmongEightIsGrantedInItsTurn() throws Exception {
        LockOptions defaults = LockOptions.defaults();
        amongEight(defaults, defaults.slice().toMillis() / 8 + 100);
    }

    @Test
    void aWaiterWithShortSlicesAmongEightIsGrantedInItsTurn() throws Exception {
        amongEight(LockOptions.defaults().withSlice(Duration.ofMillis(400)), 80);
    }

    /** Eight of the holds are longer than a slice. */
    private void amongEight(LockOptions chosen, long holdMs) throws Exception {
        assertTrue(8 * holdMs > chosen.slice().toMillis());
        try (RedisLockClient client = RedisLockClient.connect(server.url(), chosen);
                Crowd crowd = new Crowd(server, 8, holdMs)) {
            awaitWaiters("a", 7);
            int before = crowd.holds();
            long start = System.nanoTime();
            boolean granted = client.lock("a").tryLock(12 * holdMs, TimeUnit.MILLISECONDS);
            long tookMs = (System.nanoTime() - start) / 1_000_000;
            int after = crowd.holds() - before;
            System.out.printf(
                    "slices of %s: granted %b after %d holds of %d ms, %d ms%n",
                    chosen.slice(), granted, after, holdMs, tookMs);
            assertTrue(granted);
            assertTrue(after <= 10, after + " holds of others came first");
            client.lock("a").unlock();
        }
    }

    @Test
    void waitersWithShortSlicesAreServedInOrder() {
        try (RedisLockClient sliced =
                RedisLockClient.connect(server.url(), options.withSlice(Duration.ofMillis(30)))) {
            // Each waits for some slices, and holds for longer than one.
            assertEquals(List.of(0, 1, 2, 3, 4, 5), orderOf(6, sliced, 200, 50));
        }
    }

    @Test
    void aDeadWaiterCostsItsGraceAtMost() throws Exception {
        long graceMs = 600;
        try (FaultyProxy proxy = new FaultyProxy(server.port());
                RedisLockClient dying = RedisLockClient.connect(
                        proxy.url(), options.withGrace(Duration.ofMillis(graceMs)));
                Other next = new Other()) {
            RedisLock lock = locks.lock("a");
            lock.lock();
            Future<Void> dead = other.starts(() -> dying.lock("a").lock());
            awaitWaiters("a", 1);
            Future<Void> waiting = next.starts(() -> lock.lock());
            awaitWaiters("a", 2);
            proxy.shut();
            awaitAbsent();
            long start = System.nanoTime();
            lock.unlock();
            Other.result(waiting);
            assertItCostItsGraceAtMost("a dead waiter", graceMs, start);
            next.does(() -> lock.unlock());
            assertThrows(JedisException.class, () -> Other.result(dead));
        }
    }

    @ParameterizedTest
    @ValueSource(longs = {30, 10_000})
    void aWaiterWhoseTimeIsOverLeavesNoPlace(long sliceMs) throws Exception {
        givesUp(sliceMs, lock -> assertFalse(lock.tryLock(300, TimeUnit.MILLISECONDS)));
    }

    @ParameterizedTest
    @ValueSource(longs = {30, 10_000})
    void anInterruptedWaiterLeavesNoPlace(long sliceMs) throws Exception {
        givesUp(sliceMs, lock -> {
            Thread waiter = Thread.currentThread();
            try (Other interrupter = new Other()) {
                interrupter.starts(() -> {
                    awaitWaiters("a", 1);
                    waiter.interrupt();
                });
                assertThrows(InterruptedException.class, lock::lockInterruptibly);
            }
        });
    }

    @Test
    void aWaiterThatGetsAnErrorLeavesNoPlace() throws Exception {
        try (Other interferer = new Other()) {
            givesUp(30, lock -> {
                interferer.starts(() -> {
                    awaitWaiters("a", 1);
                    server.redis.configSet("maxmemory", "1");
                });
                try {
                    JedisDataException failed = assertThrows(JedisDataException.class, lock::lock);
                    assertTrue(failed.getMessage().startsWith("OOM"));
                } finally {
                    server.redis.configSet("maxmemory", "0");
                }
            });
        }
    }

    private interface GivingUp {
        void with(RedisLock lock) throws Exception;
    }

    private void givesUp(long sliceMs, GivingUp action) throws Exception {
        RedisLock lock = locks.lock("a");
        lock.lock();
        LockOptions chosen = longGrace.withSlice(Duration.ofMillis(sliceMs));
        try (RedisLockClient waiter = RedisLockClient.connect(server.url(), chosen)) {
            long waiting = other.does(() -> {
                action.with(waiter.lock("a"));
                return server.waiting("a");
            });
            assertEquals(0, waiting);
            lock.unlock();
            assertFalse(server.redis.exists("a"), "nothing was left to it");
        }
    }

    @Test
    void aClosedClientLeavesNoPlace() {
        RedisLockClient closing = RedisLockClient.connect(server.url(), longGrace);
        locks.lock("a").lock();
        Future<Void> waiting = other.starts(() -> closing.lock("a").lock());
        awaitWaiters("a", 1);
        closing.close();
        assertEquals(0, server.waiting("a"));
        assertThrows(JedisException.class, () -> Other.result(waiting));
        assertEquals(0, server.waiting("a"));
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
            Future<Void> writing = other.starts(() -> lock.writeLock().lockInterruptibly());
            awaitWaiters("a", 1);
            other.thread.interrupt();
            assertThrows(ExecutionException.class, () -> writing.get(20, TimeUnit.SECONDS));
            assertEquals(0, server.waiting("a"));
            assertEquals(2, server.holders("a").size());
            other.does(() -> lock.readLock().unlock());
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"cut, and the next connection is slow", "half open"})
    void aPlaceOutlivesItsConnection(String fault) throws Exception {
        Duration slice = fault.equals("half open") ? Duration.ofMillis(300) : options.slice();
        LockOptions chosen = LockOptions.defaults().withSlice(slice);
        try (FaultyProxy proxy = new FaultyProxy(server.port());
                RedisLockClient far = RedisLockClient.connect(proxy.url(), chosen);
                Other second = new Other()) {
            RedisLock lock = locks.lock("a");
            lock.lock();
            List<String> order = new CopyOnWriteArrayList<>();
            Future<Void> firstWaits = other.starts(() -> {
                far.lock("a").lock();
                order.add("first");
            });
            awaitWaiters("a", 1);
            Future<Void> secondWaits = second.starts(() -> {
                lock.lock();
                order.add("second");
            });
            awaitWaiters("a", 2);
            if (fault.equals("half open")) {
                proxy.silent = true;
            } else {
                proxy.cut(400);
            }
            awaitAbsent();
            lock.unlock(); // Its turn comes while nobody listens.
            proxy.silent = false;
            Other.result(firstWaits);
            assertEquals(List.of("first"), order);
            assertEquals(1, server.waiting("a"), "the second one waits");
            other.does(() -> far.lock("a").unlock());
            Other.result(secondWaits);
            second.does(() -> lock.unlock());
        }
    }

    @Test
    void anInterruptDoesNotCostLockItsPlace() {
        RedisLock lock = locks.lock("a");
        lock.lock();
        try (Other second = new Other()) {
            List<String> order = new CopyOnWriteArrayList<>();
            Future<Void> first = other.starts(() -> {
                lock.lock();
                order.add("first");
                assertTrue(Thread.interrupted());
                lock.unlock();
            });
            awaitWaiters("a", 1);
            Future<Void> later = second.starts(() -> {
                lock.lock();
                order.add("second");
                lock.unlock();
            });
            awaitWaiters("a", 2);
            other.thread.interrupt();
            Eventually.pause(100);
            lock.unlock();
            Other.result(first);
            Other.result(later);
            assertEquals(List.of("first", "second"), order);
        }
    }

    @Test
    void aModuleWithoutPlacesIsWaitedForWithoutThem() throws Exception {
        List<String> said = new CopyOnWriteArrayList<>();
        Logger logger = Logger.getLogger("io.github.redislock");
        Handler handler = noting(said);
        logger.addHandler(handler);
        logger.setUseParentHandlers(false);
        try (FaultyProxy proxy = new FaultyProxy(server.port());
                RedisLockClient client = RedisLockClient.connect(proxy.url(), options)) {
            proxy.old = true;
            for (int turn = 0; turn < 2; turn++) {
                RedisLock lock = client.lock("a");
                assertTrue(lock.tryLock(1, TimeUnit.MINUTES));
                assertFalse(other.does(() -> lock.tryLock(50, TimeUnit.MILLISECONDS)));
                assertEquals(0, server.waiting("a"));
                lock.unlock();
            }
            assertEquals(1, proxy.keeps.get());
            assertEquals(1, said.size(), said.toString());
            assertTrue(said.get(0).contains("KEEP"));
        } finally {
            logger.removeHandler(handler);
            logger.setUseParentHandlers(true);
        }
    }

    private static Handler noting(List<String> said) {
        return new Handler() {
            @Override
            public void publish(LogRecord logged) {
                said.add(logged.getMessage());
            }

            @Override
            public void flush() {}

            @Override
            public void close() {}
        };
    }

    @Test
    void onlyAWaiterSaysKeep() throws Exception {
        try (FaultyProxy proxy = new FaultyProxy(server.port());
                RedisLockClient client = RedisLockClient.connect(proxy.url(), options);
                RedisLockClient placeless =
                        RedisLockClient.connect(proxy.url(), options.withGrace(Duration.ZERO))) {
            locks.lock("a").lock();
            assertFalse(other.does(() -> client.lock("a").tryLock()));
            assertFalse(other.does(() -> placeless.lock("a").tryLock(20, TimeUnit.MILLISECONDS)));
            assertEquals(0, proxy.keeps.get());
            assertFalse(other.does(() -> client.lock("a").tryLock(20, TimeUnit.MILLISECONDS)));
            assertEquals(1, proxy.keeps.get());
        }
    }

    @Test
    void aGraceIsFromAMillisecondToAnHour() {
        for (Duration wrong :
                List.of(Duration.ofNanos(1), Duration.ofMillis(-1), Duration.ofMinutes(61))) {
            assertInstanceOf(
                    IllegalArgumentException.class,
                    assertThrows(RuntimeException.class, () -> options.withGrace(wrong)));
        }
        assertEquals(Duration.ofSeconds(5), LockOptions.defaults().grace());
    }

    private void awaitAbsent() {
        Eventually.isTrue("a place of nobody", () -> server.absent("a") == 1);
    }
}
