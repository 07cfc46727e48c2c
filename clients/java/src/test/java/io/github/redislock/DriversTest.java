package io.github.redislock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

/** The same by every driver, with the pool and the settings that it has by default. */
class DriversTest extends ServerTest {
    private static final int THREADS = 20;

    private final LockOptions patient = LockOptions.defaults().withOnLost(lost::add);

    @ParameterizedTest
    @EnumSource
    void twentyThreadsThatWaitDoNotStallTheOwner(Driver driver) throws Exception {
        try (Driver.Opened opened = driver.open(server.url(), patient)) {
            RedisLock lock = opened.locks.lock("a");
            lock.lock();
            AtomicInteger inside = new AtomicInteger();
            List<Other> others = new ArrayList<>();
            List<Future<Void>> ends = new ArrayList<>();
            for (int number = 0; number < THREADS; number++) {
                Other waiter = new Other();
                others.add(waiter);
                ends.add(waiter.starts(() -> {
                    lock.lock();
                    assertEquals(1, inside.incrementAndGet());
                    inside.decrementAndGet();
                    lock.unlock();
                }));
            }
            awaitWaiters("a", THREADS);
            long start = System.nanoTime();
            lock.unlock();
            long unlockMs = (System.nanoTime() - start) / 1_000_000;
            ends.forEach(Other::result);
            long allMs = (System.nanoTime() - start) / 1_000_000;
            System.out.printf("%s: unlocked in %d ms, all in %d ms%n", driver, unlockMs, allMs);
            assertTrue(unlockMs < 1_000, "to unlock took " + unlockMs);
            assertTrue(allMs < 15_000, "all together took " + allMs);
            others.forEach(Other::close);
        }
        assertNull(lost.poll());
    }

    @ParameterizedTest
    @EnumSource
    void everyKindOfLock(Driver driver) throws Exception {
        try (Driver.Opened opened =
                driver.open(server.url(), patient.withTtl(Duration.ofSeconds(2)))) {
            RedisLockClient mine = opened.locks;
            RedisLock lock = mine.lock("a");
            lock.lock();
            lock.lock();
            assertTrue(lock.isLocked() && lock.check());
            assertEquals("OK", lock.exec("SET", "guarded", 7));
            assertEquals("7", server.redis.get("guarded"));
            assertFalse(other.does(() -> lock.tryLock(50, TimeUnit.MILLISECONDS)));
            Eventually.pause(2_200); // Renewed.
            assertTrue(lock.check());
            lock.unlock();
            lock.unlock();
            assertFalse(lock.isLocked());

            RedisReadWriteLock both = mine.readWriteLock("b");
            both.readLock().lock();
            assertTrue(other.does(() -> both.readLock().tryLock()));
            other.does(() -> both.readLock().unlock());
            both.writeLock().lock();
            both.readLock().unlock();
            both.writeLock().unlock();

            RedisSemaphore permits = mine.semaphore("c", 2);
            try (RedisHold one = permits.acquire();
                    RedisHold two = permits.tryAcquire()) {
                assertTrue(two.fence() > one.fence());
                assertEquals(0, permits.availablePermits());
                assertNull(permits.tryAcquire());
            }
            RedisMultiLock several = mine.multiLock(mine.lock("d"), mine.lock("e"));
            try (RedisHold hold = several.acquire()) {
                assertTrue(hold.check() && hold.renew(Duration.ofMinutes(1)));
                assertTrue(server.redis.pttl("e") > 50_000);
            }
            assertFalse(server.redis.exists("d"));
            Duration least = Duration.ofSeconds(20);
            Duration most = Duration.ofMinutes(1);
            assertTrue(mine.runOnce("f", most, least, hold -> hold.exec("INCR", "runs")));
            assertFalse(mine.runOnce("f", most, least, hold -> hold.exec("INCR", "runs")));
            assertEquals("1", server.redis.get("runs"));
            assertTrue(server.redis.pttl("f") > 10_000);
            assertThrows(IllegalMonitorStateException.class, lock::unlock);
        }
        assertNull(lost.poll());
    }

    @ParameterizedTest
    @EnumSource
    void anInterruptedWaiterLeavesNothing(Driver driver) throws Exception {
        // A pool of the application's is read until the end of a slice.
        LockOptions brief = patient.withSlice(Duration.ofMillis(200));
        try (Driver.Opened opened = driver.open(server.url(), brief)) {
            RedisLock lock = opened.locks.lock("a");
            lock.lock();
            Future<Void> waiting = other.starts(() -> lock.lockInterruptibly());
            awaitWaiters("a", 1);
            other.thread.interrupt();
            ExecutionException cut =
                    assertThrows(ExecutionException.class, () -> waiting.get(20, TimeUnit.SECONDS));
            assertInstanceOf(InterruptedException.class, cut.getCause());
            awaitWaiters("a", 0);
            lock.unlock();
            assertTrue(lock.tryLock());
            lock.unlock();
        }
    }

    @ParameterizedTest
    @EnumSource
    void aLostConnectionCostsNothing(Driver driver) throws Exception {
        try (Driver.Opened opened = driver.open(server.url(), patient)) {
            RedisLock lock = opened.locks.lock("a");
            lock.lock();
            long fence = lock.fence();
            Future<Void> waiting = other.starts(() -> {
                lock.lock();
                lock.unlock();
            });
            awaitWaiters("a", 1);
            server.cutConnections();
            Eventually.isTrue(
                    "it waits at its place",
                    () -> server.waiting("a") == 1
                            // This one never stays.
                            && (driver == Driver.LETTUCE_CONNECTION || server.absent("a") == 0));
            assertTrue(lock.check());
            assertEquals(fence, lock.fence());
            lock.unlock();
            Other.result(waiting);
        }
        assertNull(lost.poll());
    }

    @ParameterizedTest
    @EnumSource(mode = EnumSource.Mode.EXCLUDE, names = "JEDIS_UNIFIED")
    void aHoldThatLingersEndsSoonAfterItsClient(Driver driver) throws Exception {
        try (FaultyProxy proxy = new FaultyProxy(server.port());
                Driver.Opened opened =
                        driver.open(proxy.url(), patient.withLinger(Duration.ofMillis(100)))) {
            RedisLock lock = opened.locks.lock("a");
            locks.lock("a").lock();
            Future<Void> waiting = other.starts(() -> lock.lock()); // Granted while it waits.
            awaitWaiters("a", 1);
            locks.lock("a").unlock();
            Other.result(waiting);
            assertTrue(server.redis.pttl("a") > 20_000);
            proxy.shut();
            Eventually.isTrue("it is free", () -> !server.redis.exists("a"));
        }
    }

    @ParameterizedTest
    @EnumSource(mode = EnumSource.Mode.EXCLUDE, names = "JEDIS_UNIFIED")
    void aHoldThatLingersIsBoundToTheNextConnection(Driver driver) throws Exception {
        try (FaultyProxy proxy = new FaultyProxy(server.port());
                Driver.Opened opened =
                        driver.open(proxy.url(), patient.withLinger(Duration.ofSeconds(5)))) {
            RedisLock lock = opened.locks.lock("a");
            lock.lock();
            RedisHold read = opened.locks.readWriteLock("b").readLock().acquire();
            for (int turn = 0; turn < 2; turn++) {
                proxy.cut();
                Eventually.isTrue("its end came forward", () -> server.redis.pttl("a") < 5_001);
                for (String name : List.of("a", "b")) {
                    Eventually.isTrue("it has its ttl", () -> server.redis.pttl(name) > 20_000);
                }
            }
            assertTrue(lock.check());
            assertTrue(read.check());
        }
        assertNull(lost.poll());
    }

    @Test
    void aPoolThatHidesItsConnectionsCannotLinger() throws Exception {
        LockOptions lingers = options.withLinger(Duration.ZERO);
        assertThrows(
                IllegalArgumentException.class,
                () -> Driver.JEDIS_UNIFIED.open(server.url(), lingers));
    }
}
