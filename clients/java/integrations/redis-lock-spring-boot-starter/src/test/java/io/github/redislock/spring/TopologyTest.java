package io.github.redislock.spring;

import static org.assertj.core.api.Assertions.assertThat;

import io.github.redislock.testing.*;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import org.springframework.context.ApplicationContext;
import org.springframework.data.redis.connection.*;
import org.springframework.data.redis.connection.lettuce.LettuceClientConfiguration;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;

class TopologyTest {
    /** Lettuce's getter has the default server then. */
    @ParameterizedTest
    @ValueSource(strings = {"socket", "static"})
    void locks_do_not_go_to_a_server_that_nobody_named(String kind) {
        RedisConfiguration configuration = kind.equals("socket")
                ? new RedisSocketConfiguration("/run/redis.sock")
                : new RedisStaticMasterReplicaConfiguration("127.0.0.2", 6380);
        var client = LettuceClientConfiguration.defaultConfiguration();
        var factory = new LettuceConnectionFactory(configuration, client);
        ServerTest.runner("lettuce")
                .withBean(RedisConnectionFactory.class, () -> factory)
                .run(context -> assertThat(context)
                        .getFailure()
                        .rootCause()
                        .isInstanceOf(IllegalStateException.class)
                        .hasMessageContaining("define a RedisLockClient bean"));
    }

    /** Lettuce's getter has the default server then, too. */
    @Test
    void locks_go_to_the_server_of_an_address_that_lettuce_has_read() {
        try (TestServer server = TestServer.start()) {
            var configuration = LettuceConnectionFactory.createRedisConfiguration(server.url());
            var factory = new LettuceConnectionFactory(configuration);
            ServerTest.runner("lettuce")
                    .withBean(RedisConnectionFactory.class, () -> factory)
                    .run(context -> assertTakenAt(server, context, "a"));
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"jedis", "lettuce"})
    void in_a_cluster_locks_are_spread_by_their_keys(String driver) {
        try (TestCluster cluster = new TestCluster()) {
            String seed = "127.0.0.1:" + cluster.first().port();
            ServerTest.runner(driver, "spring.data.redis.cluster.nodes=" + seed)
                    .run(context -> {
                        String prefix = RedisLockRegistry.DEFAULT_PREFIX;
                        for (int node = 0; node < 3; node++) {
                            String key = cluster.key(prefix, node).substring(prefix.length());
                            assertTakenAt(cluster.nodes.get(node), context, key);
                        }
                    });
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"jedis", "lettuce"})
    void locks_go_to_the_primary_that_a_sentinel_names(String driver) {
        try (TestSentinel group = new TestSentinel()) {
            ServerTest.runner(
                            driver,
                            "spring.data.redis.sentinel.master=" + TestSentinel.MASTER,
                            "spring.data.redis.sentinel.nodes=127.0.0.1:" + group.sentinel.port())
                    .run(context -> assertTakenAt(group.primary, context, "a"));
        }
    }

    private static void assertTakenAt(TestServer server, ApplicationContext context, String key) {
        var lock = context.getBean(RedisLockRegistry.class).obtain(key);
        lock.lock();
        assertThat(server.isLocked(lock.getKey())).isTrue();
        lock.unlock();
        assertThat(server.isLocked(lock.getKey())).isFalse();
    }
}
