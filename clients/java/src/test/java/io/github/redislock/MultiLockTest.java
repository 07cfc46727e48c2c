package io.github.redislock;

import static org.junit.jupiter.api.Assertions.*;

import io.github.redislock.testing.Eventually;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

import java.time.Duration;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;

/** Several locks as one. */
@Timeout(value = 60, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class MultiLockTest extends ServerTest {
    private static RedisMultiLock both(RedisLockClient client) {
        return client.multiLock(client.lock("a"), client.lock("b"));
    }

    @Test
    void itIsReentrantThroughEitherOrder() {
        RedisMultiLock turned = locks.multiLock(locks.lock("b"), locks.lock("a"));
        RedisMultiLock both = both(locks);
        both.lock();
        assertEquals(server.holders("a"), server.holders("b"));
        assertTrue(turned.tryLock());
        assertEquals(2, both.getHoldCount());
        assertEquals(both.fence(), turned.fence());
        turned.unlock();
        assertTrue(both.isHeldByCurrentThread() && both.check());
        both.unlock();
        assertFalse(server.isLocked("a") || server.isLocked("b"));
        assertThrows(IllegalMonitorStateException.class, both::unlock);
    }

    @Test
    void aThreadDoesNotWaitForItself() {
        RedisLock a = locks.lock("a");
        RedisMultiLock both = both(locks);
        both.lock();
        assertThrows(IllegalStateException.class, a::lock);
        assertFalse(a.isHeldByCurrentThread());
        both.unlock();
        a.lock();
        assertThrows(IllegalStateException.class, both::lock);
        a.unlock();
        assertThrows(IllegalArgumentException.class, () -> locks.multiLock(a, a));
        assertThrows(IllegalArgumentException.class, () -> locks.multiLock());
    }

    @Test
    void aLossIsThatOfTheWholeCount() throws Exception {
        RedisMultiLock both = both(locks);
        both.lock();
        both.lock();
        long fence = both.fence();
        server.ask("DEL", "b");
        assertEquals(fence, awaitLost().fence());
        assertFalse(both.isHeldByCurrentThread());
        assertThrows(IllegalMonitorStateException.class, both::unlock);
    }

    @Test
    void oneThatIsTakenAwayTakesTheOthersAlong() {
        RedisMultiLock both = both(locks);
        both.lock();
        assertTrue(locks.lock("a").forceUnlock());
        assertFalse(both.isHeldByCurrentThread());
        assertFalse(server.isLocked("a") || server.isLocked("b"));
    }

    /** As by a guard, while a token holds them all by a grant that nobody saw. */
    @Test
    void oneThatIsToldNoAtOncePauses() throws Exception {
        try (FaultyProxy proxy = new FaultyProxy(server.port());
                RedisLockClient client = RedisLockClient.connect(proxy.url(), options)) {
            assertTrue(both(client).tryLock(1, TimeUnit.SECONDS)); // It connects.
            both(client).unlock();
            proxy.answer("LOCK.MACQUIRE", "$-1\r\n", Integer.MAX_VALUE);
            assertFalse(both(client).tryLock(1, TimeUnit.SECONDS));
            int asked = Integer.MAX_VALUE - proxy.toAnswer.get();
            assertTrue(asked > 2 && asked < 30, asked + " times");
        }
    }

    @Test
    void aGrantThatWasNotSeenAndEndedInPartIsAskedForAnew() throws Exception {
        LockOptions brief =
                options.withTtl(Duration.ofSeconds(3)).withSlice(Duration.ofMillis(200));
        try (FaultyProxy proxy = new FaultyProxy(server.port());
                RedisLockClient client = RedisLockClient.connect(proxy.url(), brief)) {
            proxy.swallowFirstFence();
            Future<Boolean> asking = other.starts(() -> both(client).tryLock(10, TimeUnit.SECONDS));
            Eventually.isTrue("the grant was lost", proxy::hasSwallowed);
            server.ask("DEL", "b");
            assertTrue(Other.result(asking));
            assertTrue(other.does(() -> both(client).check()));
            other.does(() -> both(client).unlock());
        }
        assertFalse(server.isLocked("a") || server.isLocked("b"));
    }
}
