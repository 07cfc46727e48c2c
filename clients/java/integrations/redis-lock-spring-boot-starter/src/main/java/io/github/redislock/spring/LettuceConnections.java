package io.github.redislock.spring;

import io.github.redislock.LockOptions;

import org.springframework.data.redis.connection.RedisConnectionFactory;

/** Connections by Lettuce. */
final class LettuceConnections {
    private LettuceConnections() {}

    static RedisLockConnection like(RedisConnectionFactory factory, LockOptions options) {
        throw new IllegalStateException("not yet");
    }
}
