package io.github.redislock;

import static org.junit.jupiter.api.Assertions.*;

import io.github.redislock.testing.Eventually;
import io.github.redislock.testing.TestServer;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.*;
import org.junit.jupiter.params.provider.ValueSource;

import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.AtomicInteger;

/** Every version of the server. */
@ParameterizedClass
@ValueSource(strings = {"redis-7.0.15", "redis-8.2.3", "valkey-8.0.1"})
class ServersTest extends ServerTest {
    private static final int THREADS = 16;
    private static final int TURNS = 25;

    @Parameter
    String version;

    @BeforeParameterizedClassInvocation
    void startVersion(String version) {
        server.close();
        server = TestServer.start(version);
    }

    @Test
    void manyThreadsOfTwoClientsShareOneLock() {
        try (RedisLockClient second = RedisLockClient.connect(server.url())) {
            AtomicInteger inside = new AtomicInteger();
            int[] unguarded = {0};
            long[] lastFence = {0};
            Other.inThreads(THREADS, TURNS, number -> {
                RedisLock lock = (number % 2 == 0 ? locks : second).lock("a");
                lock.lock();
                try {
                    assertEquals(1, inside.incrementAndGet());
                    assertTrue(lock.fence() > lastFence[0]);
                    lastFence[0] = lock.fence();
                    unguarded[0]++;
                    inside.decrementAndGet();
                } finally {
                    lock.unlock();
                }
            });
            assertEquals(THREADS * TURNS, unguarded[0]);
            assertFalse(server.isLocked("a"));
        }
    }

    @Test
    void anInterruptedWaiterLeavesNothingBehind() throws Exception {
        RedisLock lock = locks.lock("a");
        for (int turn = 0; turn < 20; turn++) {
            lock.lock();
            Future<Void> waiting = awaitWaiter(lock::lockInterruptibly);
            // At the same moment: the grant may be on its way while the connection is closed.
            other.thread.interrupt();
            lock.unlock();
            try {
                waiting.get(20, TimeUnit.SECONDS);
                other.does(() -> lock.unlock());
            } catch (ExecutionException interrupted) {
                assertEquals(InterruptedException.class, interrupted.getCause().getClass());
            }
            assertTrue(lock.tryLock(), "held by nobody in turn " + turn);
            lock.unlock();
            other.does(() -> Thread.interrupted());
        }
    }
}
