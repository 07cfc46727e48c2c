package io.github.redislock.spring;

import io.github.redislock.Once;
import io.github.redislock.RedisLockClient;

import org.springframework.data.redis.cache.*;

import java.util.function.UnaryOperator;

/**
 * Spring Data's caches in Redis, whose {@code get(key, loader)} has one caller of all processes
 * load a value, while the others wait for it. {@code @Cacheable(sync = true)} calls that.
 *
 * <p>A value that is about to end is loaded by one caller, while the others get the old one. What
 * is being loaded when its key is evicted is not stored; {@code clear} and {@code put} leave it. The
 * statistics of a cache do not count the calls with a loader.
 */
public class OnceCacheManager extends RedisCacheManager {
    private final RedisLockClient client;
    private final UnaryOperator<Once<Object>> how;

    /**
     * Makes one.
     *
     * @param writer does all other operations
     * @param defaults of caches, with an {@code entryTtl}
     * @param client asks for values
     * @param how sets {@code early} and {@code patience} of all caches
     */
    public OnceCacheManager(
            RedisCacheWriter writer,
            RedisCacheConfiguration defaults,
            RedisLockClient client,
            UnaryOperator<Once<Object>> how) {
        super(writer, defaults);
        this.client = client;
        this.how = how;
    }

    @Override
    protected RedisCache createRedisCache(String name, RedisCacheConfiguration configuration) {
        RedisCacheConfiguration its =
                configuration == null ? getDefaultCacheConfiguration() : configuration;
        return new OnceCache(name, getCacheWriter(), its, client, how);
    }
}
