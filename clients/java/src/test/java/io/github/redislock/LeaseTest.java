package io.github.redislock;

import static org.junit.jupiter.api.Assertions.*;

import io.github.redislock.testing.Eventually;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;

/** How long a hold lasts, and what becomes of one that is lost. */
class LeaseTest extends ServerTest {
    @Test
    void aLeaseEndsByItself() throws Exception {
        RedisLock lock = locks.lock("a");
        lock.lock(2, TimeUnit.SECONDS);
        long fence = lock.fence();
        assertTrue(other.does(() -> lock.tryLock(1, TimeUnit.MINUTES)));
        LostLock told = awaitLost();
        assertEquals("a", told.name());
        assertEquals(fence, told.fence());
        assertSame(Thread.currentThread(), told.owner());
        assertFalse(lock.isHeldByCurrentThread());
        assertThrows(IllegalMonitorStateException.class, lock::unlock);
        assertTrue(
                other.does(() -> lock.isHeldByCurrentThread()),
                "the late unlock took nothing from the next one");
    }

    /** Of 2 ms the margin leaves nothing. */
    @ParameterizedTest
    @EnumSource(names = {"JEDIS", "LETTUCE_FUTURES"})
    void aLeaseThatIsOverFromTheBeginningEndsTheWait(Way way) {
        try (Way.Opened opened = way.open(server.url(), options)) {
            assertFalse(
                    opened.take(Way.Kind.LOCK, List.of("a"), 20_000, 2).isHeld());
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
            server.ask("CONFIG", "RESETSTAT");
            Eventually.isTrue("it is renewed", () -> server.calls("lock.renew") > 1);
            assertTrue(server.leftMs("a") > 3_500_000);
            for (int count = 4; count > 0; count--) {
                assertEquals(count, lock.getHoldCount());
                lock.unlock();
            }
        }
    }

    /** As while a guard is on. */
    @Test
    void aNestedLockDoesNotWaitForAServerThatRenewsNothing() throws Exception {
        String tryAgain = "-TRYAGAIN not now\r\n";
        LockOptions longer = options.withTtl(Duration.ofSeconds(5));
        try (FaultyProxy proxy = new FaultyProxy(server.port());
                RedisLockClient client = RedisLockClient.connect(proxy.url(), longer)) {
            for (ThreadLock lock : List.of(client.lock("a"), client.multiLock(client.lock("b")))) {
                lock.lock(4, TimeUnit.SECONDS);
                long fence = lock.fence();
                proxy.answerRenewals(tryAgain, Integer.MAX_VALUE);
                long startNanos = System.nanoTime();
                lock.lock(1, TimeUnit.SECONDS);
                lock.lock();
                assertTrue(lock.tryLock());
                assertTrue(System.nanoTime() - startNanos < TimeUnit.SECONDS.toNanos(2));
                assertEquals(4, lock.getHoldCount());
                proxy.toAnswer.set(0);
                server.ask("CONFIG", "RESETSTAT");
                Eventually.isTrue("it is renewed", () -> server.calls("lock.renew") > 0);
                assertEquals(fence, lock.fence());
            }
            RedisLock lock = client.lock("c");
            lock.lock(4, TimeUnit.SECONDS);
            proxy.answerRenewals(tryAgain, 2);
            lock.lock(1, TimeUnit.HOURS);
            assertEquals(0, proxy.toAnswer.get());
            assertTrue(server.leftMs("c") > 3_500_000);
        }
    }

    @Test
    void aReaderThatWasTheWriterKeepsALongerLease() {
        RedisReadWriteLock lock = locks.readWriteLock("a");
        lock.readLock().lock(1, TimeUnit.HOURS);
        lock.writeLock().lock();
        assertTrue(server.leftMs("a") > 3_500_000);
        lock.writeLock().unlock();
        assertTrue(server.leftMs("a") > 3_500_000);
        lock.readLock().unlock();
    }

    @Test
    void unlockSeesThatItWasTakenAway() {
        RedisLock lock = locks.lock("a");
        lock.lock();
        server.ask("DEL", "a");
        assertThrows(IllegalMonitorStateException.class, lock::unlock);
        assertNull(lost.poll(), "the exception has told it");
    }

    @Test
    void aNestedLockAfterALossIsANewHold() throws InterruptedException {
        RedisLock lock = locks.lock("a");
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

    /** As renewals at a node that is silent, while the other nodes of a cluster are not. */
    @Test
    void workBeyondTheMostThatMayWaitKeepsNoOtherFromTheClock() {
        int count = Engine.MOST_WORKERS + 1;
        CountDownLatch goesOn = new CountDownLatch(1);
        CountDownLatch done = new CountDownLatch(count);
        try (Engine engine = new Engine(JedisDriver.to(server.url(), 2_000), options, false)) {
            for (int number = 0; number < count; number++) {
                engine.later(0, () -> {
                    Other.quietly(goesOn::await);
                    done.countDown();
                });
            }
            CompletableFuture<Void> ticks = new CompletableFuture<>();
            engine.at(0, () -> ticks.complete(null));
            Other.result(ticks);
            goesOn.countDown();
            Eventually.isTrue("all is done", () -> done.getCount() == 0);
        }
    }

    @Test
    void aDeadThreadIsNotRenewed() throws Exception {
        RedisLock lock = locks.lock("a");
        Thread mortal = new Thread(lock::lock);
        mortal.start();
        mortal.join();
        assertTrue(lock.isLocked());
        assertTrue(lock.tryLock(1, TimeUnit.MINUTES));
        assertSame(mortal, awaitLost().owner());
    }

    @Test
    void aClosedClientIsNotRenewed() {
        locks.lock("a").lock();
        locks.close();
        Eventually.isTrue("the lease ends", () -> !server.isLocked("a"));
    }
}
