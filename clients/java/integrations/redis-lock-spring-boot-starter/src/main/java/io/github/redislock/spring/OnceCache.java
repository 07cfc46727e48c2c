package io.github.redislock.spring;

import io.github.redislock.Once;
import io.github.redislock.RedisLockClient;

import org.springframework.dao.QueryTimeoutException;
import org.springframework.data.redis.cache.*;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.concurrent.Callable;
import java.util.concurrent.TimeoutException;
import java.util.function.UnaryOperator;

/** Its get with a loader has one caller of all processes load the value: LOCK.ONCE. */
final class OnceCache extends RedisCache {
    private final RedisLockClient client;
    private final Once<Object> how;

    OnceCache(
            String name,
            RedisCacheWriter writer,
            RedisCacheConfiguration configuration,
            RedisLockClient client,
            UnaryOperator<Once<Object>> how) {
        super(name, writer, configuration);
        this.client = client;
        this.how = how.apply(Once.of(this::serializeCacheValue, this::deserializeCacheValue));
    }

    @Override
    @SuppressWarnings("unchecked")
    public <T> T get(Object key, Callable<T> loader) {
        Duration keep = getCacheConfiguration().getTtlFunction().getTimeToLive(key, null);
        if (keep.toMillis() < 1) {
            throw new IllegalArgumentException("the cache " + getName() + " needs an entryTtl");
        }
        String name = name(key);
        Callable<Object> make = () -> {
            try {
                return toStoreValue(loader.call());
            } catch (Exception failed) {
                throw new ValueRetrievalException(key, loader, failed);
            }
        };
        try {
            return (T) fromStoreValue(client.once(name, how.withKeep(keep), make));
        } catch (RuntimeException failed) {
            throw failed;
        } catch (TimeoutException over) {
            throw new QueryTimeoutException("another caller loads " + name, over);
        } catch (Exception interrupted) {
            Thread.currentThread().interrupt();
            throw new IllegalStateException("interrupted while waiting for " + name, interrupted);
        }
    }

    /** Whoever loads it from what was there before does not store it. */
    @Override
    public void evict(Object key) {
        client.lock(Once.lock(name(key))).forceUnlock();
        super.evict(key);
    }

    private String name(Object key) {
        return new String(serializeCacheKey(createCacheKey(key)), StandardCharsets.UTF_8);
    }
}
