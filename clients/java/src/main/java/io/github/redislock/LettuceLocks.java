package io.github.redislock;

/** Makes a {@link RedisLockClient} over a client of Lettuce that the application has. */
public final class LettuceLocks {
    private LettuceLocks() {}

    static RedisLockClient connect(String url, LockOptions options) {
        throw new UnsupportedOperationException("Jedis is not on the class path");
    }
}
