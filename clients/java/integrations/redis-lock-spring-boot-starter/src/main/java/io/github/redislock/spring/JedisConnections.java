package io.github.redislock.spring;

import io.github.redislock.*;

import org.springframework.data.redis.connection.*;
import org.springframework.data.redis.connection.jedis.JedisClientConfiguration;
import org.springframework.data.redis.connection.jedis.JedisConnectionFactory;

import redis.clients.jedis.*;
import redis.clients.jedis.util.Pool;

import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Collection;
import java.util.Set;
import java.util.stream.Collectors;

/** Connections by Jedis, with classes that all of its versions from 5 to 8 have. */
@SuppressWarnings("deprecation")
final class JedisConnections {
    /** Threads that wait at once in a cluster, each with a connection in hand. */
    private static final int WAITERS = 1_000;

    private static final int CLUSTER_ATTEMPTS = 5;

    private final JedisConnectionFactory factory;
    private final LockOptions options;
    private final Duration answer;

    private JedisConnections(JedisConnectionFactory factory, LockOptions options) {
        this.factory = factory;
        this.options = options;
        this.answer = RedisLockConnection.answerTime(options);
    }

    static RedisLockConnection like(RedisConnectionFactory factory, LockOptions options) {
        JedisConnections like = new JedisConnections((JedisConnectionFactory) factory, options);
        RedisClusterConfiguration cluster = like.factory.getClusterConfiguration();
        if (cluster != null) {
            return like.cluster(cluster);
        }
        RedisSentinelConfiguration sentinel = like.factory.getSentinelConfiguration();
        JedisClientConfiguration client = like.factory.getClientConfiguration();
        if (sentinel == null && !client.isUseSsl() && client.getClientName().isEmpty()) {
            String url = url(like.factory.getStandaloneConfiguration());
            // Its waiting threads notice an interrupt at once.
            return new RedisLockConnection(RedisLockClient.connect(url, options), () -> {});
        }
        Pool<Jedis> pool = sentinel == null
                ? like.standalone(like.factory.getStandaloneConfiguration())
                : like.sentinel(sentinel);
        return new RedisLockConnection(JedisLocks.over(pool, options), pool::close);
    }

    private static String url(RedisStandaloneConfiguration server) {
        String user = server.getUsername() == null ? "" : server.getUsername();
        String login = server.getPassword()
                .map(password -> encoded(user) + ":" + encoded(new String(password)) + "@")
                .orElse("");
        String host = server.getHostName();
        return "redis://"
                + login
                + (host.contains(":") && !host.startsWith("[") ? "[" + host + "]" : host)
                + ":"
                + server.getPort()
                + "/"
                + server.getDatabase();
    }

    private static String encoded(String text) {
        return URLEncoder.encode(text, StandardCharsets.UTF_8).replace("+", "%20");
    }

    private JedisPool standalone(RedisStandaloneConfiguration server) {
        return new JedisPool(
                new JedisPoolConfig(),
                new HostAndPort(server.getHostName(), server.getPort()),
                config(server.getUsername(), server.getPassword(), server.getDatabase()));
    }

    private JedisSentinelPool sentinel(RedisSentinelConfiguration servers) {
        return new JedisSentinelPool(
                servers.getMaster().getName(),
                addresses(servers.getSentinels()),
                new JedisPoolConfig(),
                config(servers.getUsername(), servers.getPassword(), servers.getDatabase()),
                config(servers.getSentinelUsername(), servers.getSentinelPassword(), 0));
    }

    private RedisLockConnection cluster(RedisClusterConfiguration servers) {
        ConnectionPoolConfig unbound = new ConnectionPoolConfig();
        // A bound would have unlock() wait for a connection that a waiter has.
        unbound.setMaxTotal(-1);
        JedisCluster cluster = new JedisCluster(
                addresses(servers.getClusterNodes()),
                config(servers.getUsername(), servers.getPassword(), 0),
                CLUSTER_ATTEMPTS,
                options.reconnect().plus(answer),
                unbound);
        return new RedisLockConnection(JedisLocks.over(cluster, WAITERS, options), cluster::close);
    }

    private JedisClientConfig config(String user, RedisPassword password, int database) {
        JedisClientConfiguration client = factory.getClientConfiguration();
        int answerMs = Math.toIntExact(answer.toMillis());
        DefaultJedisClientConfig.Builder builder = DefaultJedisClientConfig.builder()
                .connectionTimeoutMillis(answerMs)
                .socketTimeoutMillis(answerMs)
                // Above every BLOCK that is sent.
                .blockingSocketTimeoutMillis(
                        Math.toIntExact(options.slice().plus(answer).toMillis()))
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
