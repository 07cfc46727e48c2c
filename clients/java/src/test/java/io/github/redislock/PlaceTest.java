package io.github.redislock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.redislock.testing.Eventually;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.exceptions.JedisException;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;

/** The place in the queue: kept over slices and lost connections, and given up in the end. */
@Timeout(value = 60, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class PlaceTest extends ServerTest {
    /** So long that a place that is gone was given up. */
    private final LockOptions longGrace = options.withGrace(Duration.ofHours(1));

    @ParameterizedTest
    @ValueSource(ints = {400, 10_000})
    void aClientAmongEightIsGrantedInItsTurn(int sliceMs) throws Exception {
        LockOptions chosen = LockOptions.defaults().withSlice(Duration.ofMillis(sliceMs));
        long holdMs = sliceMs / 8 + 100; // Eight of the holds are longer than a slice.
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

    /** Each waits for some slices, and holds for longer than one. */
    @Test
    void waitersWithShortSlicesAreServedInOrder() {
        LockOptions sliced = options.withSlice(Duration.ofMillis(30));
        try (RedisLockClient client = RedisLockClient.connect(server.url(), sliced)) {
            locks.lock("a").lock();
            List<Integer> order = new CopyOnWriteArrayList<>();
            List<Other> others = Stream.generate(Other::new).limit(6).toList();
            List<Future<Void>> ends = new ArrayList<>();
            for (int number = 0; number < 6; number++) {
                int mine = number;
                ends.add(others.get(number).starts(() -> {
                    client.lock("a").lock();
                    order.add(mine);
                    Eventually.pause(50);
                    client.lock("a").unlock();
                }));
                awaitWaiters("a", number + 1);
            }
            Eventually.pause(200);
            locks.lock("a").unlock();
            ends.forEach(Other::result);
            others.forEach(Other::close);
            assertEquals(List.of(0, 1, 2, 3, 4, 5), order);
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
            Future<Void> dead = awaitWaiter(() -> dying.lock("a").lock());
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
                    server.ask("CONFIG", "SET", "maxmemory", "1");
                });
                try {
                    JedisDataException failed = assertThrows(JedisDataException.class, lock::lock);
                    assertTrue(failed.getMessage().startsWith("OOM"));
                } finally {
                    server.ask("CONFIG", "SET", "maxmemory", "0");
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
            assertFalse(server.isLocked("a"), "nothing was left to it");
        }
    }

    @Test
    void aClosedClientLeavesNoPlace() {
        RedisLockClient closing = RedisLockClient.connect(server.url(), longGrace);
        locks.lock("a").lock();
        Future<Void> waiting = awaitWaiter(() -> closing.lock("a").lock());
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
            interrupt(awaitWaiter(() -> lock.writeLock().lockInterruptibly()));
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
            Future<Void> first = awaitWaiter(() -> far.lock("a").lock());
            Future<Void> later = second.starts(() -> lock.lock());
            awaitWaiters("a", 2);
            if (fault.equals("half open")) {
                proxy.silent = true;
            } else {
                proxy.cut(400);
            }
            awaitAbsent();
            lock.unlock(); // Its turn comes while nobody listens.
            proxy.silent = false;
            Other.result(first);
            assertFalse(later.isDone());
            assertEquals(1, server.waiting("a"), "the second one waits");
            other.does(() -> far.lock("a").unlock());
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

    @Test
    void aModuleWithoutPlacesIsWaitedForWithoutThem() throws Exception {
        try (Warnings warnings = new Warnings();
                FaultyProxy proxy = new FaultyProxy(server.port());
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
            assertEquals(1, warnings.said.size(), warnings.said.toString());
            assertTrue(warnings.said.get(0).contains("KEEP"));
        }
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
            assertThrows(IllegalArgumentException.class, () -> options.withGrace(wrong));
        }
        assertEquals(Duration.ofSeconds(5), LockOptions.defaults().grace());
    }

    private void awaitAbsent() {
        Eventually.isTrue("a place of nobody", () -> server.absent("a") == 1);
    }
}
