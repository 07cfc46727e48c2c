package io.github.redislock;

import static org.junit.jupiter.api.Assertions.*;

import io.github.redislock.testing.Eventually;

import io.lettuce.core.RedisClient;

import org.apache.commons.pool2.impl.GenericObjectPoolConfig;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

import redis.clients.jedis.*;
import redis.clients.jedis.providers.PooledConnectionProvider;
import redis.clients.jedis.util.Pool;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.*;

/** What users met: pools, executors, orphans, slow listeners, releases that fail. */
@Timeout(value = 90, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class FaultsTest extends ServerTest {
    private final LockOptions patient = LockOptions.defaults().withOnLost(lost::add);

    /** Three threads that have a connection each, of a pool of three. */
    @Test
    void anExhaustedPoolStopsNoLockAndNoUnlock() {
        JedisPoolConfig three = new JedisPoolConfig();
        three.setMaxTotal(3);
        try (JedisPool pool = new JedisPool(three, "127.0.0.1", server.port());
                RedisLockClient over = JedisLocks.over(pool, patient)) {
            CyclicBarrier all = new CyclicBarrier(3);
            Other.inThreads(3, 1, number -> {
                try (Jedis mine = pool.getResource()) {
                    all.await();
                    RedisLock lock = over.lock("a" + number);
                    assertTrue(lock.tryLock());
                    assertEquals("PONG", mine.ping());
                    lock.unlock();
                    all.await();
                }
            });
        }
    }

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
    void anExhaustedPoolOfAPooledClientStopsNoRenewal() {
        GenericObjectPoolConfig<Connection> one = new GenericObjectPoolConfig<>();
        one.setMaxTotal(1);
        LockOptions quick = patient.withTtl(Duration.ofSeconds(3));
        HostAndPort address = new HostAndPort("127.0.0.1", server.port());
        JedisClientConfig config = DefaultJedisClientConfig.builder().build();
        try (Pooled jedis = new Pooled(new PooledConnectionProvider(address, config, one));
                RedisLockClient over = JedisLocks.over(jedis, quick)) {
            try (Connection taken = jedis.getPool().getResource()) {
                RedisLock lock = over.lock("a");
                lock.lock();
                server.ask("CONFIG", "RESETSTAT");
                Eventually.isTrue("it is renewed", () -> server.calls("lock.renew") > 0);
                lock.unlock();
                assertTrue(taken.ping());
            }
        }
        assertNull(lost.poll());
    }

    @ParameterizedTest
    @EnumSource(names = {"JEDIS", "LETTUCE"})
    void anUnlockThatIsRefusedCanBeRepeatedAndUntilThenItIsRenewed(Way way) {
        try (Way.Opened opened = way.open(server.url(), options)) {
            RedisLock lock = opened.locks.lock("a");
            lock.lock();
            long fence = lock.fence();
            server.ask("ACL", "SETUSER", "default", "-lock.release");
            try {
                RuntimeException refused = assertThrows(RuntimeException.class, lock::unlock);
                assertTrue(refused.getMessage().contains("NOPERM"), refused.toString());
                assertEquals(fence, lock.fence());
                assertTrue(lock.isHeldByCurrentThread());
            } finally {
                server.ask("ACL", "SETUSER", "default", "+lock.release");
            }
            server.ask("CONFIG", "RESETSTAT");
            Eventually.isTrue("it is renewed", () -> server.calls("lock.renew") > 1);
            lock.unlock();
            assertFalse(server.isLocked("a") || lock.isHeldByCurrentThread());
        }
    }

    @Test
    void oneSlowListenerDelaysNoOtherNews() throws Exception {
        CountDownLatch slow = new CountDownLatch(1);
        LockOptions listening = patient.withTtl(Duration.ofSeconds(2)).withOnLost(news -> {
            if (news.name().equals("a0")) {
                Other.quietly(slow::await);
            }
            lost.add(news);
        });
        try (RedisLockClient client = RedisLockClient.connect(server.url(), listening)) {
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
    }

    @Test
    void aLossIsLoggedIfNobodyListens() {
        LockOptions silent = LockOptions.defaults().withTtl(Duration.ofSeconds(1));
        try (Warnings warnings = new Warnings();
                RedisLockClient client = RedisLockClient.connect(server.url(), silent)) {
            client.lock("a").lock();
            server.ask("DEL", "a");
            Eventually.isTrue("it is said", () -> !warnings.said.isEmpty());
            assertTrue(warnings.said.get(0).contains("The lock a was lost"), warnings.said.get(0));
        }
    }

    /** One continuation blocks, and neither a free lock nor the news of a loss waits for it. */
    @ParameterizedTest
    @EnumSource
    void continuationsRunOnTheGivenExecutor(Executors given) throws Exception {
        CountDownLatch blocks = new CountDownLatch(1);
        ExecutorService mine = java.util.concurrent.Executors.newFixedThreadPool(
                4, task -> new Thread(task, "mine"));
        LockOptions options = given == Executors.GIVEN ? patient.withExecutor(mine) : patient;
        RedisClient lettuce = RedisClient.create(server.url());
        try (LettuceLockClient client = LettuceLockClient.connect(
                lettuce, options.withTtl(Duration.ofSeconds(2)))) {
            AsyncHold lostSoon = Other.result(client.lock("lost").lock());
            List<String> threads = new CopyOnWriteArrayList<>();
            for (int number = 0; number < 2; number++) {
                client.lock("blocking" + number).lock().thenAccept(hold -> {
                    threads.add(Thread.currentThread().getName());
                    Other.quietly(blocks::await);
                });
            }
            Eventually.isTrue("both block", () -> threads.size() == 2);
            String name = given == Executors.GIVEN ? "mine" : "redis-lock-callback";
            assertEquals(List.of(name, name), threads);
            assertTrue(Other.result(Other.result(client.lock("free").lock()).unlock()));
            server.ask("DEL", "lost");
            assertEquals("lost", awaitLost().name());
            assertEquals(Keeper.GONE, Other.result(lostSoon.lost()));
        } finally {
            blocks.countDown();
            mine.shutdown();
            Way.ending(lettuce).close();
        }
    }

    /** Whose threads run the continuations. */
    enum Executors {
        GIVEN,
        OWN
    }

    @Test
    void whatWorksWithAHoldLeavesNothingBehind() throws Exception {
        try (Way.Opened opened = Way.LETTUCE_FUTURES.open(server.url(), patient)) {
            AsyncLock lock = opened.futures.lock("a");
            Boolean worked = Other.result(lock.with(hold -> done(hold.fence() > 0)));
            assertTrue(worked);
            assertFalse(server.isLocked("a"));
            CompletableFuture<Integer> failing = lock.with(hold -> {
                throw new IllegalStateException("the work");
            });
            assertThrows(IllegalStateException.class, () -> Other.result(failing));
            assertFalse(server.isLocked("a"));

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
            Eventually.isTrue("it ends with the work", () -> !server.isLocked("a"));
        }
    }

    private static <T> CompletableFuture<T> done(T value) {
        return CompletableFuture.completedFuture(value);
    }

    @Test
    void aHoldThatIsLostMeanwhileFailsTheWork() throws Exception {
        try (Way.Opened opened = Way.LETTUCE_FUTURES.open(server.url(), patient)) {
            CompletableFuture<Integer> work = opened.futures.lock("a").with(hold -> {
                server.ask("DEL", "a");
                return done(1);
            });
            assertThrows(IllegalMonitorStateException.class, () -> Other.result(work));
        }
    }
}
