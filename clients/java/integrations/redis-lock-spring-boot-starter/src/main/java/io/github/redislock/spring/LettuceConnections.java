package io.github.redislock.spring;

import io.github.redislock.LettuceLocks;
import io.github.redislock.LockOptions;
import io.github.redislock.RedisLockClient;
import io.lettuce.core.AbstractRedisClient;
import io.lettuce.core.ClientOptions;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisURI;
import io.lettuce.core.SslVerifyMode;
import io.lettuce.core.cluster.ClusterClientOptions;
import io.lettuce.core.cluster.RedisClusterClient;
import io.lettuce.core.resource.ClientResources;

import org.springframework.data.redis.connection.RedisClusterConfiguration;
import org.springframework.data.redis.connection.RedisConfiguration;
import org.springframework.data.redis.connection.RedisConfiguration.WithAuthentication;
import org.springframework.data.redis.connection.RedisConnectionFactory;
import org.springframework.data.redis.connection.RedisNode;
import org.springframework.data.redis.connection.RedisPassword;
import org.springframework.data.redis.connection.RedisSentinelConfiguration;
import org.springframework.data.redis.connection.RedisStandaloneConfiguration;
import org.springframework.data.redis.connection.lettuce.LettuceClientConfiguration;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;

import java.time.Duration;
import java.util.List;
import java.util.function.Supplier;

/**
 * Connections by Lettuce. They share the threads of the application's, and have the same options,
 * those of TLS among them.
 */
final class LettuceConnections {
    private final LettuceConnectionFactory factory;
    private final LettuceClientConfiguration client;

    private LettuceConnections(LettuceConnectionFactory factory) {
        this.factory = factory;
        this.client = factory.getClientConfiguration();
    }

    static RedisLockConnection like(RedisConnectionFactory factory, LockOptions options) {
        LettuceConnections like = new LettuceConnections((LettuceConnectionFactory) factory);
        RedisClusterConfiguration cluster = like.factory.getClusterConfiguration();
        if (cluster != null) {
            RedisClusterClient lettuce = like.cluster(cluster);
            return closing(lettuce, () -> LettuceLocks.over(lettuce, options));
        }
        RedisSentinelConfiguration sentinel = like.factory.getSentinelConfiguration();
        RedisClient lettuce = like.client(
                sentinel == null
                        ? like.standalone(like.factory.getStandaloneConfiguration())
                        : like.sentinel(sentinel));
        return closing(lettuce, () -> LettuceLocks.over(lettuce, options));
    }

    private static RedisLockConnection closing(
            AbstractRedisClient lettuce, Supplier<RedisLockClient> over) {
        Runnable closing = () -> lettuce.shutdown(Duration.ZERO, Duration.ofSeconds(2));
        try {
            return new RedisLockConnection(over.get(), closing);
        } catch (RuntimeException failed) {
            closing.run();
            throw failed;
        }
    }

    private RedisURI standalone(RedisStandaloneConfiguration server) {
        RedisNode node = new RedisNode(server.getHostName(), server.getPort());
        RedisURI uri = uri(at(node), server);
        uri.setDatabase(server.getDatabase());
        return uri;
    }

    private RedisURI sentinel(RedisSentinelConfiguration servers) {
        RedisURI.Builder builder =
                RedisURI.builder().withSentinelMasterId(servers.getMaster().getName());
        servers.getSentinels().forEach(node -> {
            RedisURI.Builder one = at(node);
            authenticate(one, servers.getSentinelUsername(), servers.getSentinelPassword());
            builder.withSentinel(secured(one.build()));
        });
        RedisURI uri = uri(builder, servers);
        uri.setDatabase(servers.getDatabase());
        return uri;
    }

    private static RedisURI.Builder at(RedisNode node) {
        return RedisURI.builder().withHost(node.getHost()).withPort(node.getPort());
    }

    private RedisClusterClient cluster(RedisClusterConfiguration servers) {
        List<RedisURI> nodes = servers.getClusterNodes().stream()
                .map(node -> uri(at(node), servers))
                .toList();
        ClientResources resources = client.getClientResources().orElse(null);
        RedisClusterClient lettuce = resources == null
                ? RedisClusterClient.create(nodes)
                : RedisClusterClient.create(resources, nodes);
        client.getClientOptions()
                .filter(ClusterClientOptions.class::isInstance)
                .map(ClusterClientOptions.class::cast)
                .ifPresent(lettuce::setOptions);
        return lettuce;
    }

    private RedisClient client(RedisURI uri) {
        ClientResources resources = client.getClientResources().orElse(null);
        RedisClient lettuce =
                resources == null ? RedisClient.create(uri) : RedisClient.create(resources, uri);
        ClientOptions options = client.getClientOptions().orElse(null);
        if (options != null) {
            lettuce.setOptions(options);
        }
        return lettuce;
    }

    private <T extends RedisConfiguration & WithAuthentication> RedisURI uri(
            RedisURI.Builder builder, T servers) {
        authenticate(builder, servers.getUsername(), servers.getPassword());
        client.getClientName().ifPresent(builder::withClientName);
        RedisURI uri = secured(builder.build());
        client.getRedisCredentialsProviderFactory()
                .ifPresent(credentials ->
                        uri.setCredentialsProvider(credentials.createCredentialsProvider(servers)));
        return uri;
    }

    private static void authenticate(
            RedisURI.Builder builder, String user, RedisPassword password) {
        if (!password.isPresent()) {
            return;
        }
        if (user == null || user.isEmpty()) {
            builder.withPassword(password.get());
        } else {
            builder.withAuthentication(user, password.get());
        }
    }

    private RedisURI secured(RedisURI uri) {
        uri.setSsl(client.isUseSsl());
        uri.setStartTls(client.isStartTls());
        uri.setVerifyPeer(verifyMode());
        uri.setTimeout(client.getCommandTimeout());
        return uri;
    }

    @SuppressWarnings("deprecation") // The older way is for Spring Boot 3.3.
    private SslVerifyMode verifyMode() {
        try {
            return client.getVerifyMode();
        } catch (NoSuchMethodError beforeSpringData34) {
            return client.isVerifyPeer() ? SslVerifyMode.FULL : SslVerifyMode.NONE;
        }
    }
}
