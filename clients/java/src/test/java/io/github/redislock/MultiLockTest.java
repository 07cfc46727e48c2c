package io.github.redislock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

/** Several locks as one. */
@Timeout(value = 60, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class MultiLockTest extends ServerTest {
    private RedisMultiLock both() {
        return both(locks);
    }

    private static RedisMultiLock both(RedisLockClient client) {
        return client.multiLock(client.lock("a"), client.lock("b"));
    }

    @Test
    void allAreHeldUnderOneFenceAndReleasedTogether() {
        RedisMultiLock both = both();
        both.lock();
        assertEquals(1, server.holders("a").size());
        assertEquals(server.holders("a"), server.holders("b"));
        assertTrue(both.fence() > 0 && both.check());
        assertFalse(other.does(() -> locks.lock("b").tryLock()));
        both.unlock();
        assertFalse(server.redis.exists("a") || server.redis.exists("b"));
        assertThrows(IllegalMonitorStateException.class, both::unlock);
    }

    @Test
    void itIsReentrantThroughEitherOrder() {
        RedisMultiLock turned = locks.multiLock(locks.lock("b"), locks.lock("a"));
        both().lock();
        assertTrue(turned.tryLock());
        assertEquals(2, both().getHoldCount());
        assertEquals(both().fence(), turned.fence());
        turned.unlock();
        assertTrue(both().isHeldByCurrentThread());
        both().unlock();
        assertFalse(server.redis.exists("a"));
    }

    @Test
    void aThreadDoesNotWaitForItself() {
        both().lock();
        assertThrows(IllegalStateException.class, () -> locks.lock("a").lock());
        assertFalse(locks.lock("a").isHeldByCurrentThread());
        both().unlock();
        locks.lock("a").lock();
        assertThrows(IllegalStateException.class, both()::lock);
        locks.lock("a").unlock();
        RedisLock a = locks.lock("a");
        assertThrows(IllegalArgumentException.class, () -> locks.multiLock(a, a));
        assertThrows(IllegalArgumentException.class, () -> locks.multiLock());
    }

    @Test
    void withOneTheWholeIsLost() throws Exception {
        both().lock();
        long fence = both().fence();
        server.redis.del("b");
        LostLock told = awaitLost();
        assertEquals("a, b", told.name());
        assertEquals(fence, told.fence());
        assertFalse(both().isHeldByCurrentThread());
        assertThrows(IllegalMonitorStateException.class, both()::unlock);
    }

    @Test
    void crossingRequestsNeverBlockOneAnother() {
        RedisMultiLock turned = locks.multiLock(locks.lock("b"), locks.lock("a"));
        AtomicInteger inside = new AtomicInteger();
        List<Other> others = new ArrayList<>();
        List<Future<Void>> ends = new ArrayList<>();
        for (int number = 0; number < 6; number++) {
            java.util.concurrent.locks.Lock mine = switch (number % 3) {
                case 0 -> both();
                case 1 -> turned;
                default -> locks.lock("b");
            };
            Other waiter = new Other();
            others.add(waiter);
            ends.add(waiter.starts(() -> {
                for (int turn = 0; turn < 40; turn++) {
                    mine.lock();
                    assertEquals(1, inside.incrementAndGet());
                    inside.decrementAndGet();
                    mine.unlock();
                }
            }));
        }
        ends.forEach(Other::result);
        others.forEach(Other::close);
        assertFalse(server.redis.exists("a") || server.redis.exists("b"));
    }

    @Test
    void anInterruptLeavesNothingBehind() {
        locks.lock("b").lock();
        Future<Void> waiting = other.starts(() -> both().lockInterruptibly());
        awaitWaiters("a", 1);
        other.thread.interrupt();
        ExecutionException cut =
                assertThrows(ExecutionException.class, () -> waiting.get(20, TimeUnit.SECONDS));
        assertInstanceOf(InterruptedException.class, cut.getCause());
        assertEquals(0, server.waiting("a") + server.waiting("b"));
        locks.lock("b").unlock();
        assertFalse(server.redis.exists("a") || server.redis.exists("b"));
    }

    @Test
    void aGrantThatWasNotSeenAndEndedInPartIsAskedForAnew() throws Exception {
        LockOptions brief =
                options.withTtl(Duration.ofSeconds(3)).withSlice(Duration.ofMillis(200));
        try (SilentProxy proxy = new SilentProxy(server.port());
                RedisLockClient client = RedisLockClient.connect(proxy.url(), brief)) {
            Future<Boolean> asking = other.starts(() -> both(client).tryLock(10, TimeUnit.SECONDS));
            Eventually.isTrue("the grant was lost", proxy::hasSwallowed);
            server.redis.del("b");
            assertTrue(Other.result(asking));
            assertTrue(other.does(() -> both(client).check()));
            other.does(() -> both(client).unlock());
        }
        assertFalse(server.redis.exists("a") || server.redis.exists("b"));
    }

    @Test
    void aServerOf01IsNamed() throws IOException {
        try (FaultyProxy proxy = new FaultyProxy(server.port())) {
            proxy.old = true;
            try (RedisLockClient client = RedisLockClient.connect(proxy.url(), options)) {
                Exception told =
                        assertThrows(UnsupportedOperationException.class, both(client)::lock);
                assertTrue(told.getMessage().contains("LOCK.MACQUIRE"), told.getMessage());
            }
        }
    }
}
