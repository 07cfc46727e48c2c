package io.github.redislock.spring;

import static org.assertj.core.api.Assertions.assertThat;

import io.github.redislock.testing.Eventually;
import io.github.redislock.testing.TestCluster;
import io.github.redislock.testing.TestSentinel;

import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

class TopologyTest {
    @ParameterizedTest
    @ValueSource(strings = {"jedis", "lettuce"})
    void in_a_cluster_locks_are_spread_by_their_keys(String driver) {
        try (TestCluster cluster = TestCluster.start()) {
            Contexts.runner(driver, "spring.data.redis.cluster.nodes=" + cluster.addresses())
                    .run(context -> {
                        var registry = context.getBean(RedisLockRegistry.class);
                        // Of three slots, one on each node.
                        for (String key : new String[] {"a", "b", "c", "d", "e", "f"}) {
                            registry.obtain(key).lock();
                            String name = RedisLockRegistry.DEFAULT_PREFIX + key;
                            assertThat(cluster.isLocked(name)).isTrue();
                            registry.obtain(key).unlock();
                            assertThat(cluster.isLocked(name)).isFalse();
                        }
                    });
        }
    }

    /** The holder dies with the primary, and the waiter is served by the replica. */
    @ParameterizedTest
    @ValueSource(strings = {"jedis", "lettuce"})
    void a_waiter_and_its_holder_outlive_a_sentinel_failover(String driver) {
        try (TestSentinel sentinel = TestSentinel.start()) {
            Contexts.runner(
                            driver,
                            "spring.data.redis.sentinel.master=" + TestSentinel.MASTER,
                            "spring.data.redis.sentinel.nodes=" + sentinel.address(),
                            "redis-lock.reconnect=30s")
                    .run(context -> {
                        var registry = context.getBean(RedisLockRegistry.class);
                        RedisRegistryLock lock = registry.obtain("a");
                        lock.lock();
                        long fence = lock.fence();
                        Eventually.isTrue(
                                "the replica has it",
                                () -> sentinel.replica().isLocked(lock.getKey()));
                        CompletableFuture<Long> waiting = CompletableFuture.supplyAsync(() -> {
                            lock.lock();
                            long mine = lock.fence();
                            lock.unlock();
                            return mine;
                        });
                        sentinel.failOver();
                        Eventually.isTrue(
                                "it waits at the new primary",
                                () -> sentinel.replica().waiting(lock.getKey()) == 1);
                        assertThat(lock.isHeldByCurrentThread()).isTrue();
                        registry.renewLock("a");
                        assertThat(lock.fence()).isEqualTo(fence);
                        lock.unlock();
                        assertThat(waiting.get(30, TimeUnit.SECONDS)).isGreaterThan(fence);
                    });
        }
    }
}
