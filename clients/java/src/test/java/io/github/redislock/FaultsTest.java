package io.github.redislock;

import static org.junit.jupiter.api.Assertions.*;

import io.github.redislock.testing.Eventually;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;

import redis.clients.jedis.*;
import redis.clients.jedis.providers.PooledConnectionProvider;
import redis.clients.jedis.util.Pool;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.*;

/** What users met: pools, executors, orphans, slow listeners, releases that fail. */
class FaultsTest extends ServerTest {
    /** As JedisPooled and RedisClient, of different versions. */
    public static final class Pooled extends UnifiedJedis {
        private final PooledConnectionProvider provider;

        Pooled(PooledConnectionProvider provider) {
            super(provider, 1, Duration.ofSeconds(2));
            this.provider = provider;
        }

        public Pool<Connection> getPool() {
            return provider.getPool();
        }
    }

    @Test
    void anExhaustedPoolStopsNoLockNoRenewalAndNoUnlock() {
        JedisPool pool = closing(new JedisPool("127.0.0.1", server.port()));
        Pooled pooled = closing(new Pooled(new PooledConnectionProvider(
                new HostAndPort("127.0.0.1", server.port()))));
        pool.setMaxTotal(1);
        pooled.getPool().setMaxTotal(1);
        Jedis one = closing(pool.getResource());
        Connection other = closing(pooled.getPool().getResource());
        for (RedisLockClient over :
                List.of(JedisLocks.over(pool, options), JedisLocks.over(pooled, options))) {
            RedisLock lock = closing(over).lock("a");
            lock.lock();
            awaitCalls("lock.renew", 1);
            lock.unlock();
        }
        assertTrue(one.ping().equals("PONG") && other.ping());
        assertNull(lost.poll());
    }

    @ParameterizedTest
    @EnumSource(names = {"JEDIS", "LETTUCE"})
    void anUnlockThatIsRefusedCanBeRepeatedAndUntilThenItIsRenewed(Way way) {
        RedisLock lock = by(way, options).locks().lock("a");
        lock.lock();
        long fence = lock.fence();
        server.ask("ACL", "SETUSER", "default", "-lock.release");
        assertSays(RuntimeException.class, "NOPERM", lock::unlock);
        assertEquals(fence, lock.fence());
        assertTrue(lock.isHeldByCurrentThread());
        server.ask("ACL", "SETUSER", "default", "+lock.release");
        awaitCalls("lock.renew", 2);
        lock.unlock();
        assertFalse(server.isLocked("a") || lock.isHeldByCurrentThread());
    }

    @Test
    void oneSlowListenerDelaysNoOtherNews() throws Exception {
        CountDownLatch slow = new CountDownLatch(1);
        RedisLockClient client = behind(options.withOnLost(news -> {
            if (news.name().equals("a0")) {
                Other.quietly(() -> slow.await());
            }
            lost.add(news);
        }));
        for (int number = 0; number < 5; number++) {
            client.lock("a" + number).lock();
            server.ask("DEL", "a" + number);
        }
        for (int number = 1; number < 5; number++) {
            assertNotEquals("a0", awaitLost().name());
        }
        slow.countDown();
        assertEquals("a0", awaitLost().name());
    }

    @Test
    void aLossIsLoggedIfNobodyListens() {
        LockOptions silent = LockOptions.defaults().withTtl(Duration.ofSeconds(1));
        Warnings warnings = closing(new Warnings());
        behind(silent).lock("a").lock();
        server.ask("DEL", "a");
        Eventually.isTrue("it is said", () -> !warnings.said.isEmpty());
        assertTrue(warnings.said.get(0).contains("The lock a was lost"), warnings.said.get(0));
    }

    /** One continuation blocks, and neither a free lock nor the news of a loss waits for it. */
    @ParameterizedTest
    @ValueSource(strings = {"mine", "redis-lock-callback"})
    void continuationsRunOnTheGivenExecutorOrOnThreadsOfTheirOwn(String name) throws Exception {
        CountDownLatch blocks = new CountDownLatch(1);
        ExecutorService mine = Executors.newFixedThreadPool(4, Engine.daemons("mine"));
        LettuceLockClient client = by(
                        Way.LETTUCE_FUTURES,
                        name.equals("mine") ? options.withExecutor(mine) : options)
                .futures();
        AsyncHold lostSoon = Other.result(client.lock("lost").lock());
        List<String> threads = new CopyOnWriteArrayList<>();
        for (int number = 0; number < 2; number++) {
            client.lock("blocking" + number).lock().thenAccept(hold -> {
                threads.add(Thread.currentThread().getName());
                Other.quietly(() -> blocks.await());
            });
        }
        Eventually.isTrue("both block", () -> threads.size() == 2);
        assertEquals(List.of(name, name), threads);
        assertTrue(Other.result(Other.result(client.lock("free").lock()).unlock()));
        assertFalse(lostSoon.lost().isDone());
        server.ask("DEL", "lost");
        assertNull(awaitLost().owner());
        assertEquals(Keeper.GONE, Other.result(lostSoon.lost()));
        blocks.countDown();
        mine.shutdown();
    }

    @Test
    void whatWorksWithAHoldLeavesNothingBehind() throws Exception {
        AsyncLock lock = by(Way.LETTUCE_FUTURES, patient).futures().lock("a");
        CompletableFuture<Integer> working = lock.with(hold -> done(1));
        assertEquals(1, Other.result(working));
        assertFalse(server.isLocked("a"));
        CompletableFuture<Integer> failing = lock.with(hold -> {
            throw new IllegalStateException("the work");
        });
        assertThrows(IllegalStateException.class, () -> Other.result(failing));
        assertFalse(server.isLocked("a"));
        CompletableFuture<Integer> losing = lock.with(hold -> {
            server.ask("DEL", "a");
            return done(1);
        });
        assertThrows(IllegalMonitorStateException.class, () -> Other.result(losing));

        RedisHold held = locks.lock("a").tryAcquire(0, 60, TimeUnit.SECONDS);
        CompletableFuture<Integer> waiting = lock.with(hold -> done(1));
        awaitWaiters("a", 1);
        waiting.orTimeout(1, TimeUnit.MILLISECONDS);
        awaitWaiters("a", 0);
        held.release();
        assertFalse(server.isLocked("a"));

        CompletableFuture<Integer> work = new CompletableFuture<>();
        CompletableFuture<Integer> late = lock.with(hold -> work);
        Eventually.isTrue("it works", () -> server.isLocked("a"));
        late.cancel(false);
        work.complete(1);
        awaitFree("a");
    }

    private static <T> CompletableFuture<T> done(T value) {
        return CompletableFuture.completedFuture(value);
    }
}
