package io.github.redislock.spring;

import io.github.redislock.LockOptions;
import io.github.redislock.RedisLockClient;

import org.springframework.data.redis.connection.RedisConnectionFactory;
import org.springframework.data.redis.connection.jedis.JedisConnectionFactory;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;

/**
 * Connections of the locks' own, to the server that the application's connection factory names and
 * by the same driver. They do not end when the factory is stopped, so that what is unlocked during
 * a shutdown reaches the server.
 *
 * @param client over the driver
 * @param closing ends the driver, after the client
 */
record RedisLockConnection(RedisLockClient client, Runnable closing) implements AutoCloseable {
    /** By the kind of the factory. Spring Data has both, and only the one in use needs its driver. */
    static RedisLockConnection like(RedisConnectionFactory factory, LockOptions options) {
        if (factory instanceof LettuceConnectionFactory) {
            return LettuceConnections.like(factory, options);
        }
        if (factory instanceof JedisConnectionFactory) {
            return JedisConnections.like(factory, options);
        }
        throw new IllegalStateException(factory.getClass().getName()
                + " is neither of Lettuce nor of Jedis: define a RedisLockClient bean");
    }

    @Override
    public void close() {
        client.close();
        closing.run();
    }
}
