package io.github.redislock;

import static org.junit.jupiter.api.Assertions.*;

import io.github.redislock.testing.Eventually;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.*;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.*;

/**
 * Waits, and their place in the queue: kept over slices and lost connections, and given up in the
 * end.
 */
class WaitingTest extends ServerTest {
    /** So long that a place that is gone was given up, and a wait that is over has no slice. */
    private final LockOptions endless = patient.withGrace(HOUR).withSlice(HOUR);

    /** No longer than was said and the time to reconnect, but no slice. */
    @ParameterizedTest
    @EnumSource(names = {"JEDIS", "LETTUCE"})
    void aShortWaitAtASilentServerIsShort(Way way) {
        RedisLock lock = by(way, endless).locks().lock("a");
        assertTrue(lock.tryLock()); // So that Jedis has a connection; Lettuce makes another.
        lock.unlock();
        for (long waitMs : new long[] {500, 0}) {
            server.pause();
            long startNanos = System.nanoTime();
            assertThrows(
                    RuntimeException.class, () -> lock.tryLock(waitMs, TimeUnit.MILLISECONDS));
            assertTrue(System.nanoTime() - startNanos >= waitMs * 1_000_000);
            server.resume(); // It grants what it reads then.
            assertTrue(Other.quietly(() -> locks.lock("a").tryLock(20, TimeUnit.SECONDS)));
            locks.lock("a").unlock();
        }
    }

    @ParameterizedTest
    @EnumSource(mode = EnumSource.Mode.EXCLUDE, names = "LETTUCE_FUTURES")
    void anInterruptEndsAWaitOfEachKindAndLeavesNothing(Way way) {
        // Some are read until the end of a slice.
        boolean late = way == Way.JEDIS_POOL || way == Way.JEDIS_UNIFIED;
        RedisLockClient mine =
                by(way, late ? endless.withSlice(Duration.ofMillis(200)) : endless).locks();
        RedisLock lock = mine.lock("a");
        RedisHold hold = lock.tryAcquire();
        for (Other.Action wait : List.<Other.Action>of(
                lock::lockInterruptibly,
                () -> lock.tryLock(1, TimeUnit.DAYS),
                () -> mine.semaphore("a", 1).acquire(),
                () -> mine.multiLock(lock, mine.lock("b")).lockInterruptibly())) {
            interrupt(awaitWaiter(wait));
            awaitWaiters("a", 0);
            awaitWaiters("b", 0);
            assertFalse(other.does(() -> Thread.currentThread().isInterrupted()));
        }
        hold.release();
        assertFalse(server.isLocked("a") || server.isLocked("b"), "nothing was left to it");
    }

    /** Over two connections the release is read first. */
    @Test
    void anInterruptBeforeTheServerHasTheRequestLeavesNoHold() {
        RedisLock lock = behind(options.withTtl(HOUR)).lock("a");
        proxy.heldBack = "LOCK.ACQUIRE";
        Future<Void> waiting = other.starts(() -> lock.lockInterruptibly());
        Eventually.isTrue("it is on its way", () -> proxy.holdsBack);
        proxy.withheld = "LOCK.RELEASE";
        other.thread.interrupt();
        Eventually.isTrue("it is given up", () -> server.calls("lock.release") == 1);
        proxy.heldBack = null;
        Eventually.isTrue("it is granted", () -> server.isLocked("a"));
        proxy.withheld = null;
        AssertionError cut = assertThrows(AssertionError.class, () -> Other.result(waiting));
        assertInstanceOf(InterruptedException.class, cut.getCause());
        awaitFree("a");
    }

    @ParameterizedTest
    @EnumSource(names = {"JEDIS", "LETTUCE", "LETTUCE_FUTURES"})
    void aWaitThatIsGivenUpWhileNoWritesAreTakenEndsAfterThat(Way way) throws Exception {
        Way.Opened opened = by(way, endless.withReconnect(Duration.ofMillis(100)));
        RedisHold held = locks.lock("a").tryAcquire(0, 60, TimeUnit.SECONDS);
        if (way == Way.LETTUCE_FUTURES) {
            CompletableFuture<AsyncHold> waiting = opened.futures().lock("a").lock();
            awaitWaiters("a", 1);
            server.ask("CONFIG", "SET", "min-replicas-to-write", 1);
            waiting.cancel(true);
        } else {
            Future<Void> waiting = awaitWaiter(() -> opened.locks().lock("a").lockInterruptibly());
            server.ask("CONFIG", "SET", "min-replicas-to-write", 1);
            interrupt(waiting);
        }
        Eventually.pause(200); // It tries no longer than that at first.
        server.ask("CONFIG", "SET", "min-replicas-to-write", 0);
        awaitWaiters("a", 0);
        held.release();
        assertFalse(server.isLocked("a"));
    }

    @ParameterizedTest
    @EnumSource(names = {"JEDIS", "LETTUCE", "LETTUCE_FUTURES"})
    void aHoldThatIsClosedWhileTheServerIsAwayEndsSoonAfterThat(Way way) {
        Way.Opened opened =
                by(way, options.withTtl(HOUR).withReconnect(Duration.ofMillis(100)));
        CompletableFuture<Void> work = new CompletableFuture<>();
        CompletableFuture<Void> done;
        if (way == Way.LETTUCE_FUTURES) {
            done = opened.futures().lock("a").with(hold -> work);
            Eventually.isTrue("it is held", () -> server.isLocked("a"));
        } else {
            done = work.thenRun(opened.locks().lock("a").tryAcquire()::close);
        }
        proxy.cut(-1);
        work.complete(null);
        assertThrows(ExecutionException.class, done::get);
        assertTrue(server.isLocked("a"));
        proxy.connectDelayMs = 0;
        awaitFree("a");
    }

    @Test
    void anInterruptBeforeIsSeenAtOnceAndStopsNoUnlock() {
        RedisLock lock = locks.lock("a");
        assertThrows(InterruptedException.class, () -> {
            Thread.currentThread().interrupt();
            lock.lockInterruptibly();
        });
        assertFalse(Thread.currentThread().isInterrupted() || lock.isLocked());
        lock.lock();
        Thread.currentThread().interrupt();
        lock.unlock();
        assertTrue(Thread.interrupted());
        assertFalse(lock.isLocked());
    }

    /**
     * Nor does it try to reach the server. What gives its place up is on its way at the close, or
     * it has a grant while the close still waits for the answer to its release.
     */
    @ParameterizedTest
    @CsvSource({"JEDIS, false", "LETTUCE, false", "JEDIS_POOL, true", "LETTUCE, true"})
    void aWaiterOfAClosedClientLeavesNothing(Way way, boolean granted) {
        Way.Opened far = by(way, endless.withReconnect(granted ? Duration.ofSeconds(3) : HOUR));
        RedisHold held = locks.lock("a").tryAcquire();
        Future<RedisHold> waiting = awaitWaiter(far, -1);
        proxy.replyDelayMs = 200;
        if (granted) {
            held.release();
        }
        far.locks().close();
        assertThrows(RuntimeException.class, () -> Other.result(waiting));
        assertEquals(0, server.waiting("a"));
        held.close();
        assertFalse(server.isLocked("a"));
    }

    @ParameterizedTest
    @ValueSource(longs = {30, 10_000})
    void aReaderThatDoesNotBecomeTheWriterGoesOnReading(long sliceMs) {
        RedisReadWriteLock lock =
                behind(endless.withSlice(Duration.ofMillis(sliceMs))).readWriteLock("a");
        locks.readWriteLock("a").readLock().lock();
        other.does(() -> {
            lock.readLock().lock();
            assertFalse(lock.writeLock().tryLock(200, TimeUnit.MILLISECONDS));
            assertEquals(0, server.waiting("a"));
            assertTrue(lock.readLock().isHeldByCurrentThread());
        });
        interrupt(awaitWaiter(() -> lock.writeLock().lockInterruptibly()));
        assertEquals(0, server.waiting("a"));
        assertEquals(2, server.holders("a").size());
        other.does(() -> lock.readLock().unlock());
    }

    @Test
    void anInterruptDoesNotCostLockItsPlace() {
        RedisLock lock = locks.lock("a");
        lock.lock();
        Other second = closing(new Other());
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
