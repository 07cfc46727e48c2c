package io.github.redislock.spring;

import io.github.redislock.*;

import io.lettuce.core.RedisClient;
import io.lettuce.core.cluster.RedisClusterClient;

import org.springframework.beans.DirectFieldAccessor;
import org.springframework.data.redis.connection.RedisConnectionFactory;
import org.springframework.data.redis.connection.RedisStandaloneConfiguration;
import org.springframework.data.redis.connection.lettuce.LettuceClientConfiguration;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;

/**
 * Connections by Lettuce, of a second factory like the application's. They share the threads of the
 * application's, and have the same options, those of TLS among them.
 */
final class LettuceConnections {
    private LettuceConnections() {}

    static RedisLockConnection like(RedisConnectionFactory factory, LockOptions options) {
        LettuceConnectionFactory own = copy((LettuceConnectionFactory) factory);
        own.afterPropertiesSet();
        try {
            own.start(); // Unless it has done so by itself.
            RedisLockClient locks = own.getRequiredNativeClient()
                            instanceof RedisClusterClient cluster
                    ? LettuceLocks.over(cluster, options)
                    : LettuceLocks.over((RedisClient) own.getRequiredNativeClient(), options);
            return new RedisLockConnection(locks, own::destroy);
        } catch (RuntimeException failed) {
            own.destroy();
            throw failed;
        }
    }

    private static LettuceConnectionFactory copy(LettuceConnectionFactory theirs) {
        LettuceClientConfiguration client = theirs.getClientConfiguration();
        if (theirs.getClusterConfiguration() != null) {
            return new LettuceConnectionFactory(theirs.getClusterConfiguration(), client);
        }
        return theirs.getSentinelConfiguration() != null
                ? new LettuceConnectionFactory(theirs.getSentinelConfiguration(), client)
                : new LettuceConnectionFactory(standalone(theirs), client);
    }

    /** By the field, for which there is no public way: the getter may have the default server. */
    private static RedisStandaloneConfiguration standalone(LettuceConnectionFactory theirs) {
        Object madeOf = new DirectFieldAccessor(theirs).getPropertyValue("configuration");
        if (madeOf instanceof RedisStandaloneConfiguration server) {
            return server;
        }
        throw new IllegalStateException("the locks cannot use a LettuceConnectionFactory of a socket"
                + " or of a static primary with replicas: define a RedisLockClient bean");
    }
}
