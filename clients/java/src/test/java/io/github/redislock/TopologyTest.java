package io.github.redislock;

import static org.junit.jupiter.api.Assertions.*;

import io.github.redislock.testing.*;

import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisURI;
import io.lettuce.core.cluster.*;
import io.lettuce.core.cluster.api.StatefulRedisClusterConnection;
import io.lettuce.core.codec.RedisCodec;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.parallel.Execution;
import org.junit.jupiter.api.parallel.ExecutionMode;

import redis.clients.jedis.*;
import redis.clients.jedis.providers.SentineledConnectionProvider;

import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;

/** A Sentinel, a cluster, failovers in the middle of a wait and of a hold, and a slot that moves. */
@Execution(ExecutionMode.CONCURRENT)
class TopologyTest {
    /** A failover takes a few seconds, and on a busy machine more. */
    private static final Duration PATIENCE = Duration.ofSeconds(50);

    private final LinkedBlockingQueue<LostLock> lost = new LinkedBlockingQueue<>();
    private final LockOptions options =
            LockOptions.defaults().withTtl(Duration.ofSeconds(90)).withOnLost(lost::add);

    /** A waiter waits for its whole time all the same. */
    private final LockOptions brief = options.withReconnect(Duration.ofMillis(500));

    private interface Opening {
        Way.Opened open(int port, LockOptions options);
    }

    /** By the port of a Sentinel. */
    private static final Map<String, Opening> SENTINEL = Map.of(
            "jedis-sentineled",
            (port, options) -> {
                // What JedisSentineled and RedisSentinelClient, of different versions, consist of.
                DefaultJedisClientConfig config =
                        DefaultJedisClientConfig.builder().build();
                Set<HostAndPort> sentinels = Set.of(new HostAndPort("127.0.0.1", port));
                UnifiedJedis jedis = new UnifiedJedis(
                        new SentineledConnectionProvider(
                                TestSentinel.MASTER, config, sentinels, config),
                        1,
                        Duration.ofSeconds(2));
                return new Way.Opened(JedisLocks.over(jedis, options), jedis);
            },
            "jedis-pool",
            (port, options) -> {
                Set<String> sentinels = Set.of("127.0.0.1:" + port);
                JedisSentinelPool pool = new JedisSentinelPool(TestSentinel.MASTER, sentinels);
                return new Way.Opened(JedisLocks.over(pool, options), pool);
            },
            "lettuce",
            (port, options) -> {
                RedisClient client = lettuce(port);
                return new Way.Opened(LettuceLocks.over(client, options), Way.ending(client));
            },
            "lettuce-futures",
            (port, options) -> {
                RedisClient client = lettuce(port);
                return new Way.Opened(
                        LettuceLockClient.connect(client, options), Way.ending(client));
            });

    private static RedisClient lettuce(int sentinelPort) {
        return RedisClient.create(
                "redis-sentinel://127.0.0.1:" + sentinelPort + "#" + TestSentinel.MASTER);
    }

    /** By the port of a node of the cluster. */
    private static final Map<String, Opening> CLUSTER = Map.of(
            "jedis",
            (port, options) -> {
                JedisCluster jedis = new JedisCluster(new HostAndPort("127.0.0.1", port));
                return new Way.Opened(JedisLocks.over(jedis, options), jedis);
            },
            "lettuce",
            (port, options) -> {
                RedisClusterClient client = lettuceCluster(port);
                return new Way.Opened(LettuceLocks.over(client, options), Way.ending(client));
            },
            "lettuce-futures",
            (port, options) -> {
                RedisClusterClient client = lettuceCluster(port);
                return new Way.Opened(
                        LettuceLockClient.connect(client, options), Way.ending(client));
            });

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

    /** A lock that is held while two others wait for it, over one way. */
    private static final class Scene implements AutoCloseable {
        private final Way.Opened opened;
        final String name;
        private final List<Other> threads = List.of(new Other(), new Other());
        private Held hold;
        private List<Future<Held>> waiting;

        Scene(Way.Opened opened, String name) {
            this.opened = opened;
            this.name = name;
        }

        /** Takes it, and has two wait for it. */
        void begin() {
            hold = opened.take(name);
            List<String> names = List.of(name);
            waiting = threads.stream()
                    .map(thread ->
                            thread.starts(() -> opened.take(Way.Kind.LOCK, names, 120_000, -1)))
                    .toList();
        }

        void awaitWaiters(TestServer server) {
            Eventually.isTrue(name + " waits", PATIENCE, () -> server.waiting(name) == 2);
        }

        /** Is still held, and goes from hand to hand at the primary. */
        void end(TestServer primary) {
            assertTrue(hold.check());
            hold.release();
            // In the order in which they asked the new primary.
            Eventually.isTrue("one has it", () -> waiting.stream().anyMatch(Future::isDone));
            int first = waiting.get(0).isDone() ? 0 : 1;
            Held next = Other.result(waiting.get(first));
            assertTrue(next.fence() > hold.fence());
            assertEquals(List.of(next.fence()), primary.fences(name));
            assertFalse(waiting.get(1 - first).isDone());
            next.release();
            Other.result(waiting.get(1 - first)).release();
            assertFalse(primary.isLocked(name));
        }

        @Override
        public void close() {
            threads.forEach(Other::close);
            opened.close();
        }
    }

    @Test
    void sentinel_failover_inTheMiddleOfAWaitAndOfAHold() throws Exception {
        List<Scene> scenes = new ArrayList<>();
        try (TestSentinel group = new TestSentinel()) {
            SENTINEL.forEach((name, opening) ->
                    scenes.add(new Scene(opening.open(group.sentinel.port(), brief), name)));
            assertFollowFailover(scenes, group.primary, group.replica);
        } finally {
            scenes.forEach(Scene::close);
        }
        assertNull(lost.poll());
    }

    /** The old primary lives on, and closes nothing. */
    @Test
    void sentinel_plannedFailover_isFollowed() throws Exception {
        List<Scene> scenes = new ArrayList<>();
        try (TestSentinel group = new TestSentinel()) {
            for (String name : List.of("lettuce", "lettuce-futures")) {
                Opening opening = SENTINEL.get(name);
                scenes.add(new Scene(opening.open(group.sentinel.port(), brief), name));
            }
            TestServer next = group.replica;
            begin(scenes, group.primary);
            Eventually.isTrue("it is replicated", () -> caughtUp(group.primary));
            group.primary.ask("FAILOVER");
            awaitPromotion(next);
            // Which it would notice by itself, some time later.
            group.sentinel.ask("SENTINEL", "REMOVE", TestSentinel.MASTER);
            group.sentinel.ask(
                    "SENTINEL", "MONITOR", TestSentinel.MASTER, "127.0.0.1", next.port(), 1);
            scenes.forEach(scene -> scene.awaitWaiters(next));
            Eventually.isTrue(
                    "the subscription is there, too",
                    () -> next.ask("PUBSUB", "CHANNELS").toString().contains("redis-lock"));
            scenes.forEach(scene -> scene.end(next));
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
            CLUSTER.forEach((name, opening) ->
                    scenes.add(new Scene(opening.open(port, brief), cluster.key(name, 0))));
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
            List<Scene> scenes, TestServer primary, TestServer replica) {
        begin(scenes, primary);
        // The replica has the holds, or a failover may lose them.
        Eventually.isTrue("it is replicated", () -> caughtUp(primary));
        primary.kill();
        awaitPromotion(replica);
        scenes.forEach(scene -> scene.awaitWaiters(replica));
        scenes.forEach(scene -> scene.end(replica));
    }

    /** Nobody there waits for a message, which a node that was demoted might send on. */
    private static void assertWaitWithoutMessages(List<Scene> scenes, TestServer primary) {
        begin(scenes, primary);
        scenes.forEach(scene -> assertFalse(primary.tells(scene.name), scene.name));
        scenes.forEach(scene -> scene.end(primary));
    }

    private static void begin(List<Scene> scenes, TestServer primary) {
        scenes.forEach(Scene::begin);
        scenes.forEach(scene -> scene.awaitWaiters(primary));
    }

    private static void awaitPromotion(TestServer replica) {
        Eventually.isTrue(
                "the replica took over",
                PATIENCE,
                () -> replica.info("replication").contains("role:master"));
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
            CLUSTER.forEach((name, opening) -> {
                Way.Opened opened = opening.open(cluster.first().port(), options);
                try (Scene scene = new Scene(opened, cluster.key(name + "-moves", 0))) {
                    if (opened.locks != null) {
                        assertSpreadByKey(cluster, opened.locks);
                    }
                    Other.quietly(() -> assertValuesAreMade(cluster, opened, name));
                    begin(List.of(scene), cluster.first());
                    cluster.moveSlot(scene.name);
                    scene.awaitWaiters(cluster.nodes.get(1));
                    scene.end(cluster.nodes.get(1));
                }
            });
        }
        assertNull(lost.poll());
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

    private static void assertValuesAreMade(TestCluster cluster, Way.Opened opened, String way)
            throws Exception {
        for (int node = 0; node < 3; node++) {
            String key = cluster.key("value-" + way, node);
            assertEquals(way, opened.once(key, Once.text(), () -> way));
            assertEquals(way, cluster.nodes.get(node).ask("GET", key));
        }
        IllegalArgumentException refused = assertThrows(
                IllegalArgumentException.class,
                () -> opened.once("a}b", Once.text(), () -> "never"));
        assertTrue(refused.getMessage().contains("hash tag"), refused.getMessage());
    }

    /** To the first node, whichever node they ask. */
    private static void goBy(FaultyProxy proxy, TestCluster cluster) {
        int bus = cluster.first().port() + 10_000;
        cluster.first().ask("CONFIG", "SET", "cluster-announce-bus-port", bus);
        cluster.first().ask("CONFIG", "SET", "cluster-announce-port", proxy.port());
        Eventually.isTrue(
                "clients go by the proxy",
                () -> cluster.nodes.stream()
                        .allMatch(node -> node.ask("CLUSTER", "SLOTS")
                                .toString()
                                .contains("" + proxy.port())));
    }

    @Test
    void cluster_waiterThatGivesUpBeforeItIsConnected_leavesNoPlace() {
        Gate gate = new Gate();
        try (TestCluster cluster = new TestCluster()) {
            RedisURI url = RedisURI.create(cluster.first().url());
            RedisClusterClient slow = new RedisClusterClient(null, List.of(url)) {
                @Override
                public <K, V> StatefulRedisClusterConnection<K, V> connect(RedisCodec<K, V> codec) {
                    gate.pass();
                    return super.connect(codec);
                }
            };
            try (Way.Opened opened = new Way.Opened(
                    LettuceLockClient.connect(slow, options), Way.ending(slow))) {
                String name = cluster.key("a", 0);
                opened.take(name);
                gate.shut();
                assertNull(opened.take(Way.Kind.LOCK, List.of(name), 20, -1));
                gate.open();
                assertNull(opened.take(Way.Kind.LOCK, List.of(name), 1_000, -1));
                assertEquals(0, cluster.first().waiting(name));
            }
        }
    }

    /** What gives it up has another connection. */
    @Test
    void cluster_waiterThatGivesUpBeforeTheServerHasItsRequest_leavesNoPlace() throws Exception {
        try (TestCluster cluster = new TestCluster();
                FaultyProxy proxy = new FaultyProxy(cluster.first().port())) {
            goBy(proxy, cluster);
            try (Way.Opened opened = CLUSTER.get("lettuce-futures")
                    .open(cluster.nodes.get(1).port(), options.withGrace(Duration.ofHours(1)))) {
                String name = cluster.key("a", 0);
                opened.take(name);
                proxy.heldBack = "LOCK.ACQUIRE";
                assertNull(opened.take(Way.Kind.LOCK, List.of(name), 500, -1));
                proxy.heldBack = null;
                Eventually.isTrue("it has come", () -> cluster.first().waiting(name) == 1);
                Eventually.isTrue("it is gone", () -> cluster.first().waiting(name) == 0);
            }
        }
    }

    /** To its clients: the cluster sees nothing of it, and nobody takes over. */
    @Test
    void cluster_nodeThatIsSilent_costsNoLockOfAnother() throws Exception {
        int count = 12;
        LockOptions quick = options.withTtl(Duration.ofSeconds(10));
        try (TestCluster cluster = new TestCluster();
                FaultyProxy proxy = new FaultyProxy(cluster.first().port())) {
            TestServer other = cluster.nodes.get(1);
            goBy(proxy, cluster);
            Map<String, Way.Opened> all = new HashMap<>();
            CLUSTER.forEach((name, opening) -> all.put(name, opening.open(other.port(), quick)));
            Set<String> silent = new HashSet<>();
            List<Held> healthy = new ArrayList<>();
            all.forEach((name, opened) -> {
                for (int number = 0; number < count; number++) {
                    silent.add(opened.take(cluster.key(name + "-silent-" + number + "-", 0)).name());
                }
                healthy.add(opened.take(cluster.key(name + "-healthy-", 1)));
            });
            proxy.silent = true;
            while (!silent.isEmpty()) {
                LostLock told = lost.poll(PATIENCE.toSeconds(), TimeUnit.SECONDS);
                assertTrue(told != null, "nobody told of " + silent);
                assertTrue(silent.remove(told.name()), "lost: " + told);
            }
            healthy.forEach(hold -> assertTrue(hold.check(), hold.name()));
            proxy.silent = false;
            all.values().forEach(Way.Opened::close);
        }
        assertNull(lost.poll());
    }
}
