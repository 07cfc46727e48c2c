package io.github.redislock.spring;

import io.github.redislock.LettuceLocks;
import io.github.redislock.LockOptions;
import io.github.redislock.RedisLockClient;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisException;
import io.lettuce.core.cluster.RedisClusterClient;

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

    /** The getter has the default server where the factory was made of anything else. */
    private static RedisStandaloneConfiguration standalone(LettuceConnectionFactory theirs) {
        if (theirs.getSocketConfiguration() == null && knowsItsServer(theirs)) {
            return theirs.getStandaloneConfiguration();
        }
        throw new IllegalStateException("the locks cannot use a LettuceConnectionFactory of a socket"
                + " or of a static primary with replicas: define a RedisLockClient bean");
    }

    /** The client of a static primary with replicas has no address of its own. */
    private static boolean knowsItsServer(LettuceConnectionFactory theirs) {
        try {
            ((RedisClient) theirs.getRequiredNativeClient()).connect().close();
            return true;
        } catch (RedisException outOfReach) {
            return true;
        } catch (IllegalStateException noAddress) {
            return false;
        }
    }
}
