package io.github.redislock;

import static org.junit.jupiter.api.Assertions.*;

import io.github.redislock.testing.Eventually;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.*;

/** How long a hold lasts, and what becomes of one that is lost. */
class LeaseTest extends ServerTest {
    /** Short ones would be late on a busy machine. */
    private final LockOptions longer = options.withTtl(Duration.ofSeconds(6));

    @ParameterizedTest
    @EnumSource(names = {"JEDIS", "LETTUCE_FUTURES"})
    void aJobThatOutlivesItsLeaseKeepsItsLeastTime(Way way) {
        Duration least = Duration.ofSeconds(30);
        by(way, longer).runOnce("a", least, least, hold -> {
            hold.renew(Duration.ofMillis(1_500)); // What is left of it, by the client's clock.
            server.ask("LOCK.RENEW", "a", server.holders("a").get(0), 60_000);
            Eventually.isTrue("it is lost", () -> !hold.isHeld());
        });
        Eventually.isTrue("it has come", () -> server.calls("lock.release") > 0);
        assertItLastsFor(least);
    }

    @ParameterizedTest
    @EnumSource(names = {"JEDIS", "LETTUCE_FUTURES"})
    void aJobIsToldOfALossThatOnlyItsReleaseSees(Way way) throws Exception {
        Way.Opened far = by(way, longer);
        for (boolean ended : new boolean[] {false, true}) {
            assertTrue(far.runOnce("a", MINUTE, Duration.ZERO, hold -> {
                server.ask("DEL", "a");
                assertTrue(!ended || !hold.check(), "its loss is told before the release");
            }));
            assertEquals(Keeper.GONE, awaitLost().reason());
        }
        assertNull(lost.poll());
    }

    /** The last hundredth belongs to a job that is at work still. */
    @ParameterizedTest
    @EnumSource(names = {"JEDIS", "LETTUCE_FUTURES"})
    void aLeaseThatNobodyRenewsEndsAtTheServerNoSoonerForItsClient(Way way) throws Exception {
        Way.Opened far = by(way, longer);
        long leaseMs = 4_000;
        for (boolean byHand : new boolean[] {false, true}) {
            long startNanos = System.nanoTime();
            RedisHold hold = far.take(Way.Kind.LOCK, List.of("a"), 0, leaseMs);
            if (byHand) {
                Eventually.pause(500);
                startNanos = System.nanoTime();
                assertTrue(hold.renew(Duration.ofMillis(leaseMs)));
            }
            assertTrue(locks.lock("a").tryLock(20, TimeUnit.SECONDS));
            long lastedMs = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - startNanos);
            assertTrue(lastedMs >= leaseMs - 1, "it lasted for " + lastedMs + " ms");
            assertEquals(Keeper.ENDED, awaitLost().reason());
            // Which would have ended a renewal.
            Eventually.isTrue("it has come", () -> server.calls("lock.release") > 0);
            locks.lock("a").unlock();
        }
    }

    @Test
    void aNestedLockMayLengthenALeaseAndBringTheWatchdogButNotShortenIt() {
        for (ThreadLock lock : List.of(locks.lock("a"), locks.multiLock(locks.lock("a")))) {
            lock.lock(1, TimeUnit.MINUTES);
            lock.lock(1, TimeUnit.HOURS);
            lock.lock(1, TimeUnit.SECONDS);
            lock.lock();
            assertTrue(server.leftMs("a") > 3_500_000);
            awaitCalls("lock.renew", 2);
            assertTrue(server.leftMs("a") > 3_500_000);
            for (int count = 4; count > 0; count--) {
                assertEquals(count, lock.getHoldCount());
                lock.unlock();
            }
        }
    }

    /** As while a guard is on. One that waited would wait to the end of the lease. */
    @Test
    void aNestedLockDoesNotWaitForAServerThatRenewsNothing() {
        String tryAgain = "-TRYAGAIN not now\r\n";
        RedisLockClient client = behind(options.withTtl(Duration.ofSeconds(5)));
        for (ThreadLock lock : List.of(client.lock("a"), client.multiLock(client.lock("b")))) {
            lock.lock(4, TimeUnit.SECONDS);
            long fence = lock.fence();
            proxy.answer("LOCK.RENEW", tryAgain, Integer.MAX_VALUE);
            lock.lock(1, TimeUnit.SECONDS);
            lock.lock();
            assertTrue(lock.tryLock());
            assertEquals(4, lock.getHoldCount());
            proxy.toAnswer.set(0);
            awaitCalls("lock.renew", 1);
            assertEquals(fence, lock.fence());
        }
        RedisLock lock = client.lock("c");
        lock.lock(4, TimeUnit.SECONDS);
        proxy.answer("LOCK.RENEW", tryAgain, 2);
        lock.lock(1, TimeUnit.HOURS);
        assertEquals(0, proxy.toAnswer.get());
        assertTrue(server.leftMs("c") > 3_500_000);
    }

    @Test
    void anUnlockSeesThatItWasTakenAwayAndTakesNothingFromTheNext() throws Exception {
        RedisLock lock = locks.lock("a");
        lock.lock();
        server.ask("DEL", "a");
        assertThrows(IllegalMonitorStateException.class, lock::unlock);
        assertNull(lost.poll(), "the exception has told it");
        lock.lock(2, TimeUnit.SECONDS);
        assertTrue(other.does(() -> lock.tryLock(1, TimeUnit.MINUTES)));
        assertSame(Thread.currentThread(), awaitLost().owner());
        assertThrows(IllegalMonitorStateException.class, lock::unlock);
        assertTrue(other.does(() -> lock.isHeldByCurrentThread() && lock.check()));
    }

    @Test
    void aLossIsThatOfTheWholeCountAndANestedLockAfterItIsANewHold() throws Exception {
        for (ThreadLock lock : List.of(locks.lock("a"), locks.multiLock(locks.lock("a")))) {
            lock.lock();
            lock.lock();
            long fence = lock.fence();
            server.ask("DEL", "a");
            lock.lock();
            assertEquals(fence, awaitLost().fence());
            assertTrue(lock.fence() > fence);
            assertEquals(1, lock.getHoldCount());
            lock.unlock();
            assertThrows(IllegalMonitorStateException.class, lock::unlock, "that of the lost one");
        }
    }

    /** As renewals at a node that is silent, while the other nodes of a cluster are not. */
    @Test
    void workBeyondTheMostThatMayWaitKeepsNoOtherFromTheClock() {
        CountDownLatch goesOn = new CountDownLatch(1);
        CountDownLatch done = new CountDownLatch(Engine.MOST_WORKERS + 1);
        Engine engine = closing(new Engine(JedisDriver.to(server.url(), 2_000), options, false));
        for (long left = done.getCount(); left > 0; left--) {
            engine.later(0, () -> {
                Other.quietly(() -> goesOn.await());
                done.countDown();
            });
        }
        engine.at(0, goesOn::countDown);
        Eventually.isTrue("all is done", () -> done.getCount() == 0);
    }

    @Test
    void neitherADeadThreadNorAClosedClientIsRenewed() throws Exception {
        RedisLock lock = locks.lock("a");
        Thread mortal = new Thread(lock::lock);
        mortal.start();
        mortal.join();
        assertTrue(lock.isLocked());
        assertTrue(lock.tryLock(1, TimeUnit.MINUTES));
        assertSame(mortal, awaitLost().owner());
        locks.close();
        awaitFree("a");
    }
}
