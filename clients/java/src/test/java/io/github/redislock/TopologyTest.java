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
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import redis.clients.jedis.*;
import redis.clients.jedis.providers.SentineledConnectionProvider;

import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;

/** A Sentinel, a cluster, failovers in the middle of a wait and of a hold, and a slot that moves. */
@Execution(ExecutionMode.CONCURRENT)
class TopologyTest extends ClosingTest {
    private static final List<String> SENTINEL =
            List.of("jedis-sentineled", "jedis-pool", "lettuce", "lettuce-futures");
    private static final List<String> CLUSTER = List.of("jedis", "lettuce", "lettuce-futures");

    private final LockOptions options = patient.withTtl(Duration.ofSeconds(90));

    /** A waiter waits for its whole time all the same. */
    private final LockOptions brief = options.withReconnect(Duration.ofMillis(500));

    private final List<Scene> scenes = new ArrayList<>();

    private Way.Opened bySentinel(String way, int port) {
        Set<String> sentinels = Set.of("127.0.0.1:" + port);
        return switch (way) {
            case "jedis-sentineled" -> {
                // What JedisSentineled and RedisSentinelClient, of different versions, consist of.
                DefaultJedisClientConfig config =
                        DefaultJedisClientConfig.builder().build();
                UnifiedJedis jedis = new UnifiedJedis(
                        new SentineledConnectionProvider(
                                TestSentinel.MASTER,
                                config,
                                Set.of(new HostAndPort("127.0.0.1", port)),
                                config),
                        1,
                        Duration.ofSeconds(2));
                yield new Way.Opened(JedisLocks.over(jedis, brief), jedis);
            }
            case "jedis-pool" -> {
                JedisSentinelPool pool = new JedisSentinelPool(TestSentinel.MASTER, sentinels);
                yield new Way.Opened(JedisLocks.over(pool, brief), pool);
            }
            default -> {
                RedisClient client = RedisClient.create(
                        "redis-sentinel://127.0.0.1:" + port + "#" + TestSentinel.MASTER);
                yield way.equals("lettuce")
                        ? new Way.Opened(LettuceLocks.over(client, brief), Way.ending(client))
                        : new Way.Opened(
                                LettuceLockClient.connect(client, brief), Way.ending(client));
            }
        };
    }

    private static Way.Opened byNode(String way, int port, LockOptions options) {
        if (way.equals("jedis")) {
            JedisCluster jedis = new JedisCluster(new HostAndPort("127.0.0.1", port));
            return new Way.Opened(JedisLocks.over(jedis, options), jedis);
        }
        RedisClusterClient client = RedisClusterClient.create("redis://127.0.0.1:" + port);
        client.setOptions(ClusterClientOptions.builder()
                .topologyRefreshOptions(ClusterTopologyRefreshOptions.builder()
                        .enableAllAdaptiveRefreshTriggers()
                        .adaptiveRefreshTriggersTimeout(Duration.ofMillis(500))
                        .enablePeriodicRefresh(Duration.ofSeconds(1))
                        .build())
                .build());
        return way.equals("lettuce")
                ? new Way.Opened(LettuceLocks.over(client, options), Way.ending(client))
                : new Way.Opened(LettuceLockClient.connect(client, options), Way.ending(client));
    }

    /** A lock that is held while two others wait for it, over one way. */
    private static final class Scene {
        private final Way.Opened opened;
        final String name;
        private RedisHold hold;
        private List<Future<RedisHold>> waiting;

        Scene(Way.Opened opened, String name) {
            this.opened = opened;
            this.name = name;
        }

        /** Takes it, and has two wait for it. */
        void begin() {
            hold = opened.take(name);
            waiting = List.of(waits(), waits());
        }

        private Future<RedisHold> waits() {
            return new Other().starts(() -> opened.awaits(name, -1));
        }

        void awaitWaiters(TestServer server) {
            Eventually.isTrue(name + " waits", () -> server.waiting(name) == 2);
        }

        /** Is still held, and goes from hand to hand at the primary. */
        void end(TestServer primary) {
            assertTrue(hold.check());
            hold.release();
            // In the order in which they asked the new primary.
            Eventually.isTrue("one has it", () -> waiting.stream().anyMatch(Future::isDone));
            int first = waiting.get(0).isDone() ? 0 : 1;
            RedisHold next = Other.result(waiting.get(first));
            assertTrue(next.fence() > hold.fence());
            String info = primary.ask("LOCK.INFO", name).toString();
            assertTrue(info.contains("fence, " + next.fence()), info);
            assertFalse(waiting.get(1 - first).isDone());
            next.release();
            Other.result(waiting.get(1 - first)).release();
            assertFalse(primary.isLocked(name));
        }
    }

    private void begin(TestServer primary) {
        scenes.forEach(Scene::begin);
        scenes.forEach(scene -> scene.awaitWaiters(primary));
    }

    /** The other server has taken over, and all wait there. */
    private void end(TestServer next) {
        next.awaitPromotion();
        scenes.forEach(scene -> scene.awaitWaiters(next));
        scenes.forEach(scene -> scene.end(next));
        assertNull(lost.poll());
    }

    /** The replica has all that was written, or a failover may lose holds. */
    private static void awaitReplication(TestServer primary) {
        Eventually.isTrue("it is replicated", () -> {
            String info = primary.info("replication");
            String written = info.replaceAll("(?s).*master_repl_offset:(\\d+).*", "$1");
            return info.contains("offset=" + written + ",");
        });
    }

    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void sentinel_failover_inTheMiddleOfAWaitAndOfAHold(boolean planned) {
        TestSentinel group = closing(new TestSentinel());
        TestServer next = group.replica;
        for (String way : planned ? SENTINEL.subList(2, 4) : SENTINEL) {
            Way.Opened opened = closing(bySentinel(way, group.sentinel.port()));
            scenes.add(new Scene(opened, way));
        }
        begin(group.primary);
        awaitReplication(group.primary);
        if (planned) { // The old primary lives on, and closes nothing.
            group.primary.ask("FAILOVER");
            next.awaitPromotion();
            // Which it would notice by itself, some time later.
            group.sentinel.ask("SENTINEL", "REMOVE", TestSentinel.MASTER);
            group.sentinel.ask(
                    "SENTINEL", "MONITOR", TestSentinel.MASTER, "127.0.0.1", next.port(), 1);
            Eventually.isTrue(
                    "the subscription is there, too",
                    () -> next.ask("PUBSUB", "CHANNELS").toString().contains("redis-lock"));
        } else {
            group.primary.kill();
        }
        end(next);
    }

    @Test
    void cluster_failover_betweenTwoWaits_andInTheMiddleOfAWaitAndOfAHold() {
        TestCluster cluster = closing(new TestCluster());
        TestServer first = cluster.first();
        TestServer second = cluster.replica();
        for (String way : CLUSTER) {
            Way.Opened opened = closing(byNode(way, cluster.nodes.get(1).port(), brief));
            scenes.add(new Scene(opened, cluster.key(way, 0)));
        }
        for (TestServer primary : List.of(first, second)) {
            begin(primary);
            // By no message, which a node that was demoted might send on.
            scenes.forEach(scene -> assertFalse(primary.tells(scene.name), scene.name));
            end(primary);
            if (primary == first) {
                second.ask("CLUSTER", "FAILOVER");
                second.awaitPromotion();
            }
        }
        begin(second);
        awaitReplication(second);
        second.kill();
        end(first);
    }

    @Test
    void cluster_slotThatMovesUnderAWaiter_andLocksSpreadByKey() throws Exception {
        TestCluster cluster = closing(new TestCluster());
        for (String way : CLUSTER) {
            Way.Opened opened = closing(byNode(way, cluster.first().port(), options));
            if (opened.all().get(1) instanceof JedisCluster jedis) {
                for (ConnectionPool pool : jedis.getClusterNodes().values()) {
                    pool.setMaxTotal(1);
                    pool.getResource(); // An exhausted one stops nothing.
                }
            }
            if (opened.locks() != null) {
                assertSpreadByKey(cluster, opened.locks());
            }
            for (int node = 0; node < 3; node++) {
                String key = cluster.key("value-" + way, node);
                assertEquals(way, opened.once(key, Once.text(), () -> way));
                assertEquals(way, cluster.nodes.get(node).ask("GET", key));
            }
            assertSays(
                    IllegalArgumentException.class,
                    "hash tag",
                    () -> opened.once("a}b", Once.text(), () -> "never"));
            Scene scene = new Scene(opened, cluster.key(way + "-moves", 0));
            scene.begin();
            scene.awaitWaiters(cluster.first());
            cluster.moveSlot(scene.name);
            scene.awaitWaiters(cluster.nodes.get(1));
            scene.end(cluster.nodes.get(1));
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
        assertSays(IllegalArgumentException.class, "one slot", apart::lock);
    }

    /** A proxy before the first node, by which all go, whichever node they ask. */
    private FaultyProxy before(TestCluster cluster) throws Exception {
        TestServer first = cluster.first();
        FaultyProxy proxy = closing(new FaultyProxy(first.port()));
        first.ask("CONFIG", "SET", "cluster-announce-bus-port", first.port() + 10_000);
        first.ask("CONFIG", "SET", "cluster-announce-port", proxy.port());
        String port = String.valueOf(proxy.port());
        Eventually.isTrue(
                "clients go by the proxy",
                () -> cluster.nodes.stream()
                        .allMatch(node -> node.ask("CLUSTER", "SLOTS").toString().contains(port)));
        return proxy;
    }

    @Test
    void cluster_waiterThatGivesUpBeforeItIsConnected_leavesNoPlace() {
        Semaphore gate = new Semaphore(1);
        TestCluster cluster = closing(new TestCluster());
        RedisClusterClient slow =
                new RedisClusterClient(null, List.of(RedisURI.create(cluster.first().url()))) {
                    @Override
                    public <K, V> StatefulRedisClusterConnection<K, V> connect(
                            RedisCodec<K, V> codec) {
                        gate.acquireUninterruptibly();
                        gate.release();
                        return super.connect(codec);
                    }
                };
        Way.Opened opened = closing(new Way.Opened(
                LettuceLockClient.connect(slow, options), Way.ending(slow)));
        String name = cluster.key("a", 0);
        opened.take(name);
        gate.acquireUninterruptibly();
        assertNull(opened.take(Way.Kind.LOCK, List.of(name), 20, -1));
        gate.release();
        assertNull(opened.take(Way.Kind.LOCK, List.of(name), 1_000, -1));
        assertEquals(0, cluster.first().waiting(name));
    }

    /** The node that an ASK names would send what comes without ASKING back. */
    @Test
    void cluster_slotThatIsAboutToMove_isAskedForAtItsOwner() {
        TestCluster cluster = closing(new TestCluster());
        TestServer next = cluster.nodes.get(1);
        Way.Opened opened = closing(byNode("jedis", cluster.first().port(), options));
        String name = cluster.key("a", 0);
        cluster.beginToMoveSlot(name);
        opened.take(name).release(); // Any node may be asked first.
        next.ask("CONFIG", "RESETSTAT");
        for (int time = 0; time < 3; time++) {
            opened.take(name).release();
        }
        assertEquals(6, next.calls("asking"));
        assertFalse(next.info("errorstats").contains("MOVED"));
    }

    /** What gives it up has another connection. */
    @Test
    void cluster_waiterThatGivesUpBeforeTheServerHasItsRequest_leavesNoPlace() throws Exception {
        TestCluster cluster = closing(new TestCluster());
        FaultyProxy proxy = before(cluster);
        int port = cluster.nodes.get(1).port();
        Way.Opened opened = closing(
                byNode("lettuce-futures", port, options.withGrace(Duration.ofHours(1))));
        String name = cluster.key("a", 0);
        opened.take(name);
        cluster.first().ask("CONFIG", "RESETSTAT");
        proxy.heldBack = "LOCK.ACQUIRE";
        assertNull(opened.take(Way.Kind.LOCK, List.of(name), 500, -1));
        proxy.heldBack = null;
        Eventually.isTrue("it has come", () -> cluster.first().calls("lock.acquire") > 0);
        Eventually.isTrue("it is gone", () -> cluster.first().waiting(name) == 0);
    }

    /** To its clients: the cluster sees nothing of it, and nobody takes over. */
    @Test
    void cluster_nodeThatIsSilent_costsNoLockOfAnother() throws Exception {
        TestCluster cluster = closing(new TestCluster());
        FaultyProxy proxy = before(cluster);
        LockOptions quick = options.withTtl(Duration.ofSeconds(10));
        Set<String> silent = new HashSet<>();
        List<RedisHold> healthy = new ArrayList<>();
        for (String way : CLUSTER) {
            Way.Opened opened = closing(byNode(way, cluster.nodes.get(1).port(), quick));
            for (int number = 0; number < 12; number++) {
                String name = cluster.key(way + "-silent-" + number + "-", 0);
                silent.add(opened.awaits(name, -1).name());
            }
            healthy.add(opened.awaits(cluster.key(way + "-healthy-", 1), -1));
        }
        proxy.silent = true;
        while (!silent.isEmpty()) {
            LostLock told = awaitLost();
            assertTrue(silent.remove(told.name()), "lost: " + told);
        }
        healthy.forEach(hold -> assertTrue(hold.check(), hold.name()));
        proxy.silent = false;
        assertNull(lost.poll());
    }
}
