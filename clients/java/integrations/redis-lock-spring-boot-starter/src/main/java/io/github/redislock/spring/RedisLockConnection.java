package io.github.redislock.spring;

import io.github.redislock.LockOptions;
import io.github.redislock.RedisLockClient;

import org.springframework.data.redis.connection.RedisConnectionFactory;
import org.springframework.util.ClassUtils;

/**
 * Connections of the locks' own, to the server that the application's connection factory names and
 * by the same driver. They do not end when the factory is stopped, so that what is unlocked during
 * a shutdown reaches the server.
 *
 * @param client over the driver
 * @param closing ends the driver, after the client
 */
record RedisLockConnection(RedisLockClient client, Runnable closing) implements AutoCloseable {
    private static final String CONNECTION = "org.springframework.data.redis.connection.";

    /** By the kind of the factory. Classes of an absent driver are not touched. */
    static RedisLockConnection like(RedisConnectionFactory factory, LockOptions options) {
        if (isA(factory, CONNECTION + "lettuce.LettuceConnectionFactory")) {
            return LettuceConnections.like(factory, options);
        }
        if (isA(factory, CONNECTION + "jedis.JedisConnectionFactory")) {
            return JedisConnections.like(factory, options);
        }
        throw new IllegalStateException(factory.getClass().getName()
                + " is neither of Lettuce nor of Jedis: define a RedisLockClient bean");
    }

    private static boolean isA(Object factory, String name) {
        ClassLoader loader = RedisLockConnection.class.getClassLoader();
        return ClassUtils.isPresent(name, loader)
                && ClassUtils.resolveClassName(name, loader).isInstance(factory);
    }

    @Override
    public void close() {
        client.close();
        closing.run();
    }
}
