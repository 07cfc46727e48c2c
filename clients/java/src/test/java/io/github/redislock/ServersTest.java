package io.github.redislock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.lettuce.core.RedisClient;

import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

/** The same on every server that the module is tested on. */
class ServersTest {
    private static final int THREADS = 16;
    private static final int TURNS = 25;

    @ParameterizedTest
    @ValueSource(strings = {"redis-6.2.14", "redis-7.0.15", "redis-8.2.3", "valkey-8.0.1"})
    void manyThreadsShareOneLock(String version) {
        try (TestServer server = TestServer.start(version);
                RedisLockClient first = RedisLockClient.connect(server.url());
                RedisLockClient second = RedisLockClient.connect(server.url())) {
            AtomicInteger inside = new AtomicInteger();
            int[] unguarded = {0};
            long[] lastFence = {0};
            inThreads(number -> {
                RedisLock lock = (number % 2 == 0 ? first : second).lock("a");
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
            assertFalse(server.redis.exists("a"));
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"redis-6.2.14", "redis-7.0.15", "redis-8.2.3", "valkey-8.0.1"})
    void manyThreadsReadAndWrite(String version) {
        try (TestServer server = TestServer.start(version);
                RedisLockClient locks = RedisLockClient.connect(server.url())) {
            AtomicInteger readers = new AtomicInteger();
            AtomicInteger writers = new AtomicInteger();
            RedisReadWriteLock lock = locks.readWriteLock("a");
            inThreads(number -> {
                boolean writes = number % 4 == 0;
                RedisLock mine = writes ? lock.writeLock() : lock.readLock();
                mine.lockInterruptibly();
                try {
                    (writes ? writers : readers).incrementAndGet();
                    int others = writes ? readers.get() : 0;
                    assertTrue(writers.get() <= (writes ? 1 : 0) && others == 0);
                    (writes ? writers : readers).decrementAndGet();
                } finally {
                    mine.unlock();
                }
            });
            assertFalse(server.redis.exists("a"));
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"redis-6.2.14", "redis-7.0.15", "redis-8.2.3", "valkey-8.0.1"})
    void anInterruptedWaiterLeavesNothingBehind(String version) throws Exception {
        try (TestServer server = TestServer.start(version);
                RedisLockClient locks = RedisLockClient.connect(server.url());
                Other other = new Other()) {
            RedisLock lock = locks.lock("a");
            for (int turn = 0; turn < 20; turn++) {
                lock.lock();
                Future<Void> waiting = other.starts(() -> lock.lockInterruptibly());
                Eventually.isTrue("it waits", () -> server.waiting("a") == 1);
                // At the same moment: the grant may be on its way while the connection is closed.
                other.thread.interrupt();
                lock.unlock();
                try {
                    waiting.get(20, TimeUnit.SECONDS);
                    other.does(() -> lock.unlock());
                } catch (java.util.concurrent.ExecutionException interrupted) {
                    assertEquals(
                            InterruptedException.class, interrupted.getCause().getClass());
                }
                assertTrue(lock.tryLock(), "held by nobody in turn " + turn);
                lock.unlock();
                other.does(() -> Thread.interrupted());
            }
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"redis-6.2.14", "redis-7.0.15", "redis-8.2.3", "valkey-8.0.1"})
    void manyWaitersShareTwoConnections(String version) {
        try (TestServer server = TestServer.start(version)) {
            RedisClient lettuce = RedisClient.create(server.url());
            try (LettuceLockClient locks =
                    LettuceLockClient.connect(lettuce, LockOptions.defaults())) {
                List<Long> fences = Collections.synchronizedList(new ArrayList<>());
                List<CompletableFuture<Boolean>> ends = new ArrayList<>();
                for (int waiter = 0; waiter < THREADS * TURNS; waiter++) {
                    ends.add(locks.lock("a").lock().thenCompose(hold -> {
                        fences.add(hold.fence());
                        return hold.unlock();
                    }));
                }
                ends.forEach(end -> assertTrue(Other.result(end)));
                assertEquals(fences.stream().sorted().toList(), fences);
                assertFalse(server.redis.exists("a"));
            } finally {
                lettuce.shutdown(Duration.ZERO, Duration.ofSeconds(2));
            }
        }
    }

    private interface Turn {
        void run(int number) throws Exception;
    }

    private static void inThreads(Turn turn) {
        List<Other> others = new ArrayList<>();
        List<Future<Void>> ends = new ArrayList<>();
        for (int number = 0; number < THREADS; number++) {
            int mine = number;
            Other other = new Other();
            others.add(other);
            ends.add(other.starts(() -> {
                for (int count = 0; count < TURNS; count++) {
                    turn.run(mine);
                }
            }));
        }
        ends.forEach(Other::result);
        others.forEach(Other::close);
    }
}
