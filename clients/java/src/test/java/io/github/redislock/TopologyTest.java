package io.github.redislock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.lettuce.core.RedisClient;
import io.lettuce.core.cluster.ClusterClientOptions;
import io.lettuce.core.cluster.ClusterTopologyRefreshOptions;
import io.lettuce.core.cluster.RedisClusterClient;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.parallel.Execution;
import org.junit.jupiter.api.parallel.ExecutionMode;

import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.JedisCluster;
import redis.clients.jedis.JedisSentinelPool;
import redis.clients.jedis.UnifiedJedis;
import redis.clients.jedis.providers.SentineledConnectionProvider;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Future;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/** A Sentinel, a cluster, failovers in the middle of a wait and of a hold, and a slot that moves. */
@Execution(ExecutionMode.CONCURRENT)
class TopologyTest {
    /** A failover takes a few seconds, and on a busy machine more. */
    private static final Duration PATIENCE = Duration.ofSeconds(50);

    private final LinkedBlockingQueue<LostLock> lost = new LinkedBlockingQueue<>();
    private final LockOptions options =
            LockOptions.defaults().withTtl(Duration.ofSeconds(90)).withOnLost(lost::add);

    enum SentinelDriver {
        JEDIS_SENTINELED {
            @Override
            Driver.Opened open(int sentinelPort, LockOptions options) {
                // What JedisSentineled and RedisSentinelClient, of different versions, consist of.
                UnifiedJedis jedis = new UnifiedJedis(
                        new SentineledConnectionProvider(
                                "locks",
                                DefaultJedisClientConfig.builder().build(),
                                Set.of(new HostAndPort("127.0.0.1", sentinelPort)),
                                DefaultJedisClientConfig.builder().build()),
                        1,
                        Duration.ofSeconds(2));
                return new Driver.Opened(JedisLocks.over(jedis, options), jedis);
            }
        },
        JEDIS_SENTINEL_POOL {
            @Override
            Driver.Opened open(int sentinelPort, LockOptions options) {
                JedisSentinelPool pool =
                        new JedisSentinelPool("locks", Set.of("127.0.0.1:" + sentinelPort));
                return new Driver.Opened(JedisLocks.over(pool, options), pool);
            }
        },
        LETTUCE {
            @Override
            Driver.Opened open(int sentinelPort, LockOptions options) {
                RedisClient client = lettuce(sentinelPort);
                return new Driver.Opened(LettuceLocks.over(client, options), Driver.ending(client));
            }
        };

        abstract Driver.Opened open(int sentinelPort, LockOptions options);
    }

    private static RedisClient lettuce(int sentinelPort) {
        return RedisClient.create("redis-sentinel://127.0.0.1:" + sentinelPort + "#locks");
    }

    enum ClusterDriver {
        JEDIS_CLUSTER {
            @Override
            Driver.Opened open(int port, LockOptions options) {
                JedisCluster jedis = new JedisCluster(new HostAndPort("127.0.0.1", port));
                return new Driver.Opened(JedisLocks.over(jedis, options), jedis);
            }
        },
        LETTUCE {
            @Override
            Driver.Opened open(int port, LockOptions options) {
                RedisClusterClient client = lettuceCluster(port);
                return new Driver.Opened(
                        LettuceLocks.over(client, options),
                        () -> client.shutdown(Duration.ZERO, Duration.ofSeconds(2)));
            }
        };

        abstract Driver.Opened open(int port, LockOptions options);
    }

    private static RedisClusterClient lettuceCluster(int port) {
        RedisClusterClient client = RedisClusterClient.create("redis://127.0.0.1:" + port);
        client.setOptions(ClusterClientOptions.builder()
                .topologyRefreshOptions(ClusterTopologyRefreshOptions.builder()
                        .enableAllAdaptiveRefreshTriggers()
                        .adaptiveRefreshTriggersTimeout(Duration.ofMillis(500))
                        .enablePeriodicRefresh(Duration.ofSeconds(1))
                        .build())
                .build());
        return client;
    }

    /** One primary, one replica, one Sentinel. */
    private static final class SentinelGroup implements AutoCloseable {
        private final List<TestServer> all = TestServer.group("sentinel");
        final TestServer primary = all.get(0);
        final TestServer replica = all.get(1);
        final TestServer sentinel = all.get(2);

        @Override
        public void close() {
            primary.close();
        }
    }

    /** A lock that is held while others wait for it, over one driver. */
    private interface Scene extends AutoCloseable {
        String name();

        /** Takes it, and has {@link #waiters} wait for it. */
        void begin(TestServer primary) throws Exception;

        long waiters();

        /** Is still held, and goes from hand to hand at the primary. */
        void end(TestServer primary) throws Exception;

        @Override
        void close();
    }

    private static final class ThreadScene implements Scene {
        private final Driver.Opened opened;
        private final String name;
        private final RedisLock lock;
        private final Other bounded = new Other();
        private final Other endless = new Other();
        private final Other owner = new Other();
        private long fence;
        private Future<Boolean> first;
        private Future<Void> second;

        ThreadScene(Driver.Opened opened, String name) {
            this.opened = opened;
            this.name = name;
            this.lock = opened.locks.lock(name);
        }

        @Override
        public String name() {
            return name;
        }

        @Override
        public long waiters() {
            return 2;
        }

        @Override
        public void begin(TestServer primary) {
            owner.does(() -> lock.lock());
            fence = owner.does(() -> lock.fence());
            first = bounded.starts(() -> lock.tryLock(120, TimeUnit.SECONDS));
            second = endless.starts(() -> lock.lock());
        }

        @Override
        public void end(TestServer primary) throws Exception {
            assertTrue(owner.does(() -> lock.check()));
            assertEquals(fence, owner.does(() -> lock.fence()));
            owner.does(() -> lock.unlock());
            // In the order in which they asked the new primary.
            Eventually.isTrue("one has it", () -> first.isDone() || second.isDone());
            boolean boundedFirst = first.isDone();
            Other next = boundedFirst ? bounded : endless;
            long later = next.does(() -> lock.fence());
            assertTrue(later > fence);
            assertEquals(List.of(later), primary.fences(name));
            assertFalse(boundedFirst && second.isDone());
            next.does(() -> lock.unlock());
            assertTrue(Other.result(first));
            Other.result(second);
            (boundedFirst ? endless : bounded).does(() -> lock.unlock());
            assertFalse(lock.isLocked());
        }

        @Override
        public void close() {
            for (Other thread : List.of(owner, bounded, endless)) {
                thread.close();
            }
            opened.close();
        }
    }

    private static final class AsyncScene implements Scene {
        private final LettuceLockClient locks;
        private final Runnable closing;
        private final String name;
        private AsyncHold hold;
        private CompletableFuture<AsyncHold> waiting;

        AsyncScene(LettuceLockClient locks, String name, Runnable closing) {
            this.locks = locks;
            this.closing = closing;
            this.name = name;
        }

        @Override
        public String name() {
            return name;
        }

        @Override
        public long waiters() {
            return 1;
        }

        @Override
        public void begin(TestServer primary) {
            hold = Other.result(locks.lock(name).lock());
            waiting = locks.lock(name).lock();
        }

        @Override
        public void end(TestServer primary) {
            assertTrue(Other.result(hold.check()));
            assertTrue(Other.result(hold.unlock()));
            AsyncHold next = Other.result(waiting);
            assertTrue(next.fence() > hold.fence());
            assertEquals(List.of(next.fence()), primary.fences(name));
            assertTrue(Other.result(next.unlock()));
        }

        @Override
        public void close() {
            locks.close();
            closing.run();
        }
    }

    private LockOptions slow() {
        return options.withReconnect(Duration.ofSeconds(20));
    }

    @Test
    void sentinel_failover_inTheMiddleOfAWaitAndOfAHold() throws Exception {
        List<Scene> scenes = new ArrayList<>();
        try (SentinelGroup group = new SentinelGroup()) {
            int port = group.sentinel.port();
            for (SentinelDriver driver : SentinelDriver.values()) {
                scenes.add(new ThreadScene(driver.open(port, options), driver.name()));
            }
            RedisClient client = lettuce(port);
            scenes.add(new AsyncScene(
                    LettuceLockClient.connect(client, slow()),
                    "LETTUCE_ASYNC",
                    () -> client.shutdown(Duration.ZERO, Duration.ofSeconds(2))));
            assertFollowFailover(scenes, group.primary, group.replica);
        } finally {
            scenes.forEach(Scene::close);
        }
        assertNull(lost.poll());
    }

    @Test
    void cluster_failover_betweenTwoWaits_andInTheMiddleOfAWaitAndOfAHold() throws Exception {
        List<Scene> scenes = new ArrayList<>();
        try (TestCluster cluster = new TestCluster()) {
            int port = cluster.nodes.get(1).port();
            for (ClusterDriver driver : ClusterDriver.values()) {
                String name = cluster.key(driver.name(), 0);
                scenes.add(new ThreadScene(driver.open(port, options), name));
            }
            RedisClusterClient client = lettuceCluster(port);
            scenes.add(new AsyncScene(
                    LettuceLockClient.connect(client, slow()),
                    cluster.key("LETTUCE_ASYNC", 0),
                    () -> client.shutdown(Duration.ZERO, Duration.ofSeconds(2))));
            assertWaitWithoutMessages(scenes, cluster.first());
            cluster.replica().ask("CLUSTER", "FAILOVER");
            awaitPromotion(cluster.replica());
            assertWaitWithoutMessages(scenes, cluster.replica());
            assertFollowFailover(scenes, cluster.replica(), cluster.first());
        } finally {
            scenes.forEach(Scene::close);
        }
        assertNull(lost.poll());
    }

    private static void assertFollowFailover(
            List<Scene> scenes, TestServer primary, TestServer replica) throws Exception {
        begin(scenes, primary);
        // The replica has the holds, or a failover may lose them.
        Eventually.isTrue("it is replicated", () -> caughtUp(primary));
        long start = System.nanoTime();
        primary.kill();
        awaitPromotion(replica);
        long tookOverMs = (System.nanoTime() - start) / 1_000_000;
        awaitWaiters(scenes, replica);
        System.out.printf(
                "taken over after %d ms, all wait there after %d ms%n",
                tookOverMs, (System.nanoTime() - start) / 1_000_000);
        end(scenes, replica);
    }

    /** Nobody there waits for a message, which a node that was demoted might send on. */
    private static void assertWaitWithoutMessages(List<Scene> scenes, TestServer primary)
            throws Exception {
        begin(scenes, primary);
        for (Scene scene : scenes) {
            assertFalse(primary.tells(scene.name()), scene.name());
        }
        end(scenes, primary);
    }

    private static void begin(List<Scene> scenes, TestServer primary) throws Exception {
        for (Scene scene : scenes) {
            scene.begin(primary);
        }
        awaitWaiters(scenes, primary);
    }

    private static void end(List<Scene> scenes, TestServer primary) throws Exception {
        for (Scene scene : scenes) {
            scene.end(primary);
        }
    }

    private static void awaitPromotion(TestServer replica) {
        Eventually.isTrue(
                "the replica took over",
                PATIENCE,
                () -> replica.info("replication").contains("role:master"));
    }

    private static void awaitWaiters(List<Scene> scenes, TestServer server) {
        for (Scene scene : scenes) {
            Eventually.isTrue(
                    scene.name() + " waits",
                    PATIENCE,
                    () -> server.waiting(scene.name()) == scene.waiters());
        }
    }

    /** Whether the replica has all that was written. */
    private static boolean caughtUp(TestServer primary) {
        String info = primary.info("replication");
        String written = info.replaceAll("(?s).*master_repl_offset:(\\d+).*", "$1");
        return info.contains("offset=" + written + ",");
    }

    @Test
    void cluster_slotThatMovesUnderAWaiter_andLocksSpreadByKey() throws Exception {
        try (TestCluster cluster = new TestCluster()) {
            for (ClusterDriver driver : ClusterDriver.values()) {
                try (Driver.Opened opened = driver.open(cluster.first().port(), options)) {
                    assertSpreadByKey(cluster, opened.locks);
                    assertFollowsSlot(
                            cluster,
                            new ThreadScene(opened, cluster.key(driver.name() + "-moves", 0)));
                }
            }
            RedisClusterClient client = lettuceCluster(cluster.first().port());
            assertFollowsSlot(
                    cluster,
                    new AsyncScene(
                            LettuceLockClient.connect(client, slow()),
                            cluster.key("async-moves", 0),
                            () -> client.shutdown(Duration.ZERO, Duration.ofSeconds(2))));
        }
        assertNull(lost.poll());
    }

    private static void assertFollowsSlot(TestCluster cluster, Scene scene) throws Exception {
        try (scene) {
            scene.begin(cluster.first());
            awaitWaiters(List.of(scene), cluster.first());
            cluster.moveSlot(scene.name());
            awaitWaiters(List.of(scene), cluster.nodes.get(1));
            scene.end(cluster.nodes.get(1));
        }
    }

    private static void assertSpreadByKey(TestCluster cluster, RedisLockClient locks) {
        for (int node = 0; node < 3; node++) {
            RedisLock lock = locks.lock(cluster.key("spread", node));
            lock.lock();
            assertEquals(1, cluster.nodes.get(node).holders(lock.getName()).size());
            lock.unlock();
        }
        RedisMultiLock together = locks.multiLock(locks.lock("{x}a"), locks.lock("{x}b"));
        together.lock();
        together.unlock();
        RedisMultiLock apart = locks.multiLock(
                locks.lock(cluster.key("apart", 0)), locks.lock(cluster.key("apart", 1)));
        IllegalArgumentException refused =
                assertThrows(IllegalArgumentException.class, apart::lock);
        assertTrue(refused.getMessage().contains("one slot"), refused.getMessage());
    }
}
