package io.github.redislock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;

/** A lock that a number of holders share. */
@Timeout(value = 60, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class SemaphoreTest extends ServerTest {
    @Test
    void thereAreAsManyPermitsAsWereAskedFor() throws Exception {
        RedisSemaphore two = locks.semaphore("a", 2);
        assertEquals(2, two.availablePermits());
        RedisHold first = two.acquire();
        RedisHold second = two.tryAcquire();
        assertTrue(second.fence() > first.fence());
        assertEquals(List.of(first.id(), second.id()), server.holders("a"));
        assertEquals(0, two.availablePermits());
        assertNull(two.tryAcquire());
        assertNull(two.tryAcquire(50, TimeUnit.MILLISECONDS));
        assertEquals(0, server.waiting("a"));
        first.release();
        assertFalse(first.isHeld());
        first.close(); // For the second time: nothing.
        assertEquals(1, two.availablePermits());
        second.close();
        assertFalse(server.redis.exists("a"));
        assertThrows(IllegalArgumentException.class, () -> locks.semaphore("a", 0));
    }

    @Test
    void theWatchdogKeepsAPermitAlsoWhenItsThreadHasEnded() {
        RedisHold permit = other.does(() -> locks.semaphore("a", 1).acquire());
        other.close();
        Eventually.isTrue("the thread ended", () -> !other.thread.isAlive());
        Eventually.pause(3 * TTL_MS);
        assertTrue(permit.isHeld() && permit.check());
        assertNull(locks.semaphore("a", 1).tryAcquire());
        permit.release();
        assertNull(lost.poll());
    }

    @Test
    void aLeaseEndsByItself() throws Exception {
        RedisSemaphore one = locks.semaphore("a", 1);
        RedisHold brief = one.acquire(200, TimeUnit.MILLISECONDS);
        try (RedisHold next = one.tryAcquire(20, 30, TimeUnit.SECONDS)) {
            assertTrue(next.fence() > brief.fence());
            LostLock told = awaitLost();
            assertEquals(brief.fence(), told.fence());
            assertSame(Thread.currentThread(), told.owner());
            assertThrows(IllegalMonitorStateException.class, brief::close);
            assertTrue(next.check(), "the late release took nothing from the next one");
        }
    }

    @Test
    void anInterruptLeavesNothingBehind() throws Exception {
        RedisSemaphore one = locks.semaphore("a", 1);
        RedisHold held = one.acquire();
        Future<RedisHold> waiting = other.starts(() -> one.acquire());
        awaitWaiters("a", 1);
        other.thread.interrupt();
        ExecutionException cut =
                assertThrows(ExecutionException.class, () -> waiting.get(20, TimeUnit.SECONDS));
        assertInstanceOf(InterruptedException.class, cut.getCause());
        assertEquals(0, server.waiting("a"));
        held.release();
        assertFalse(server.redis.exists("a"));
    }

    @Test
    void severalProcessesNeverHoldMoreThanThePermits() throws Exception {
        List<Process> workers = new ArrayList<>();
        for (int number = 0; number < 3; number++) {
            workers.add(new ProcessBuilder(
                            ProcessHandle.current().info().command().orElseThrow(),
                            "-Xmx64m",
                            "-XX:TieredStopAtLevel=1",
                            "-cp",
                            System.getProperty("java.class.path"),
                            SemaphoreWorker.class.getName(),
                            server.url())
                    .redirectErrorStream(true)
                    .start());
        }
        try {
            for (Process worker : workers) {
                String said = new String(worker.getInputStream().readAllBytes());
                assertEquals(0, worker.waitFor(), said);
            }
        } finally {
            workers.forEach(Process::destroyForcibly);
        }
        int turns = 3 * SemaphoreWorker.THREADS * SemaphoreWorker.TURNS;
        assertEquals(turns, server.redis.llen("seen"));
        List<String> seen = server.redis.lrange("seen", 0, -1);
        assertEquals(
                SemaphoreWorker.PERMITS,
                seen.stream().mapToInt(Integer::parseInt).max().orElse(0));
        assertFalse(server.redis.exists("a"));
    }

    @Test
    void aServerOf01IsNamed() throws IOException {
        try (FaultyProxy proxy = new FaultyProxy(server.port())) {
            proxy.old = true;
            try (RedisLockClient client = RedisLockClient.connect(proxy.url(), options)) {
                RedisSemaphore two = client.semaphore("a", 2);
                Exception told = assertThrows(UnsupportedOperationException.class, two::acquire);
                assertTrue(told.getMessage().contains("LIMIT"), told.getMessage());
                assertThrows(UnsupportedOperationException.class, two::tryAcquire);
            }
        }
    }
}
