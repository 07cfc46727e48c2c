package io.github.redislock;

import static org.junit.jupiter.api.Assertions.*;

import io.github.redislock.testing.Eventually;
import io.github.redislock.testing.TestServer;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.BeforeParameterizedClassInvocation;
import org.junit.jupiter.params.Parameter;
import org.junit.jupiter.params.ParameterizedClass;
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
    void manyThreadsReadAndWrite() {
        AtomicInteger readers = new AtomicInteger();
        AtomicInteger writers = new AtomicInteger();
        RedisReadWriteLock lock = locks.readWriteLock("a");
        Other.inThreads(THREADS, TURNS, number -> {
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
        assertFalse(server.isLocked("a"));
    }

    @Test
    void manyThreadsOfTwoClientsShareThreePermits() {
        AtomicInteger inside = new AtomicInteger();
        AtomicInteger most = new AtomicInteger();
        try (RedisLockClient second = RedisLockClient.connect(server.url())) {
            Other.inThreads(THREADS, TURNS, number -> {
                RedisLockClient mine = number % 2 == 0 ? locks : second;
                RedisHold permit = mine.semaphore("a", 3).acquire();
                most.accumulateAndGet(inside.incrementAndGet(), Math::max);
                Eventually.pause(1);
                inside.decrementAndGet();
                permit.release();
            });
        }
        assertEquals(3, most.get());
        assertFalse(server.isLocked("a"));
    }

    @Test
    void manyThreadsTakeSeveralLocksThatCross() {
        AtomicInteger inside = new AtomicInteger();
        RedisMultiLock both = locks.multiLock(locks.lock("a"), locks.lock("b"));
        RedisMultiLock turned = locks.multiLock(locks.lock("b"), locks.lock("a"));
        List<ThreadLock> ways = List.of(both, turned, locks.lock("b"));
        Other.inThreads(THREADS, TURNS, number -> {
            ThreadLock mine = ways.get(number % 3);
            mine.lock();
            assertEquals(1, inside.incrementAndGet());
            inside.decrementAndGet();
            mine.unlock();
        });
        assertFalse(server.isLocked("a") || server.isLocked("b"));
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

    @Test
    void manyWaitersShareTwoConnections() {
        try (Driver.Opened client =
                Driver.LETTUCE_FUTURES.open(server.url(), LockOptions.defaults())) {
            List<Long> fences = Collections.synchronizedList(new ArrayList<>());
            List<CompletableFuture<Boolean>> ends = new ArrayList<>();
            for (int waiter = 0; waiter < THREADS * TURNS; waiter++) {
                ends.add(client.futures.lock("a").lock().thenCompose(hold -> {
                    fences.add(hold.fence());
                    return hold.unlock();
                }));
            }
            ends.forEach(end -> assertTrue(Other.result(end)));
            assertEquals(fences.stream().sorted().toList(), fences);
            assertFalse(server.isLocked("a"));
        }
    }
}
