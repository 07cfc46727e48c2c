package io.github.redislock.spring;

import io.github.redislock.*;

import org.springframework.beans.DirectFieldAccessor;
import org.springframework.data.redis.connection.*;
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
            RedisLockClient locks = LettuceLocks.over(own.getRequiredNativeClient(), options);
            return new RedisLockConnection(locks, own::destroy);
        } catch (RuntimeException failed) {
            own.destroy();
            throw failed;
        }
    }

    /** By the field, for which there is no public way: the getters may have the default server. */
    private static LettuceConnectionFactory copy(LettuceConnectionFactory theirs) {
        Object madeOf = new DirectFieldAccessor(theirs).getPropertyValue("configuration");
        if (madeOf instanceof RedisSocketConfiguration
                || madeOf instanceof RedisStaticMasterReplicaConfiguration) {
            throw new IllegalStateException("a LettuceConnectionFactory of a socket or of a static"
                    + " primary with replicas has no locks: define a RedisLockClient bean");
        }
        return new LettuceConnectionFactory(
                (RedisConfiguration) madeOf, theirs.getClientConfiguration());
    }
}
