package io.github.redislock.spring;

import io.github.redislock.*;

import org.springframework.data.redis.connection.*;
import org.springframework.data.redis.connection.jedis.JedisClientConfiguration;
import org.springframework.data.redis.connection.jedis.JedisConnectionFactory;

import redis.clients.jedis.*;
import redis.clients.jedis.util.Pool;

import java.util.Collection;
import java.util.Set;
import java.util.stream.Collectors;

/** Connections by Jedis, with classes that all of its versions from 5 to 8 have. */
@SuppressWarnings("deprecation")
record JedisConnections(JedisConnectionFactory factory, LockOptions options) {
    private static final int CLUSTER_ATTEMPTS = 5;

    static RedisLockConnection like(RedisConnectionFactory factory, LockOptions options) {
        JedisConnections like = new JedisConnections((JedisConnectionFactory) factory, options);
        RedisClusterConfiguration cluster = like.factory.getClusterConfiguration();
        RedisSentinelConfiguration sentinel = like.factory.getSentinelConfiguration();
        if (cluster != null) {
            return like.cluster(cluster);
        }
        if (sentinel != null) {
            Pool<Jedis> pool = like.sentinel(sentinel);
            return new RedisLockConnection(JedisLocks.over(pool, options), pool::close);
        }
        RedisStandaloneConfiguration one = like.factory.getStandaloneConfiguration();
        RedisLockClient client = JedisLocks.to(
                new HostAndPort(one.getHostName(), one.getPort()),
                like.config(one.getUsername(), one.getPassword(), one.getDatabase()),
                options);
        return new RedisLockConnection(client, () -> {});
    }

    private JedisSentinelPool sentinel(RedisSentinelConfiguration servers) {
        return new JedisSentinelPool(
                servers.getMaster().getName(),
                addresses(servers.getSentinels()),
                config(servers.getUsername(), servers.getPassword(), servers.getDatabase()),
                config(servers.getSentinelUsername(), servers.getSentinelPassword(), 0));
    }

    private RedisLockConnection cluster(RedisClusterConfiguration servers) {
        JedisCluster cluster = new JedisCluster(
                addresses(servers.getClusterNodes()),
                config(servers.getUsername(), servers.getPassword(), 0),
                CLUSTER_ATTEMPTS,
                options.reconnect().plusSeconds(2)); // And the time of an answer.
        return new RedisLockConnection(JedisLocks.over(cluster, options), cluster::close);
    }

    private JedisClientConfig config(String user, RedisPassword password, int database) {
        JedisClientConfiguration client = factory.getClientConfiguration();
        // A renewal without an answer after a third of the ttl must be tried again.
        int answerMs = (int) Math.min(2_000, options.ttl().toMillis() / 3);
        DefaultJedisClientConfig.Builder builder = DefaultJedisClientConfig.builder()
                .connectionTimeoutMillis(answerMs)
                .socketTimeoutMillis(answerMs)
                .user(user)
                .password(password.map(String::new).orElse(null))
                .database(database)
                .clientName(client.getClientName().orElse(null))
                .ssl(client.isUseSsl());
        client.getSslSocketFactory().ifPresent(builder::sslSocketFactory);
        client.getSslParameters().ifPresent(builder::sslParameters);
        client.getHostnameVerifier().ifPresent(builder::hostnameVerifier);
        return builder.build();
    }

    private static Set<HostAndPort> addresses(Collection<RedisNode> nodes) {
        return nodes.stream()
                .map(node -> new HostAndPort(node.getHost(), node.getPort()))
                .collect(Collectors.toSet());
    }
}
