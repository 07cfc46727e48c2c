package io.github.redislock.spring;

import org.springframework.boot.context.properties.ConfigurationProperties;
import org.springframework.boot.context.properties.bind.DefaultValue;

import java.time.Duration;

/**
 * The properties {@code redis-lock.*}.
 *
 * @param enabled whether anything of this is configured
 * @param ttl lease of a lock that is held until it is unlocked. It is renewed at a third of this
 * @param slice longest wait that is asked of the server at once
 * @param grace how long the server keeps a waiter's place while nobody listens for it. Zero keeps
 *     none
 * @param reconnect how long a command is sent again while the server is out of reach
 * @param fallback whether a server without the module is used by SET NX PX and scripts: no queue,
 *     no fence, and no lockAtLeastFor
 * @param registry of Spring Integration's registry
 * @param shedlock of ShedLock's provider
 * @param cache of Spring's cache manager
 */
@ConfigurationProperties("redis-lock")
public record RedisLockProperties(
        @DefaultValue("true") boolean enabled,
        @DefaultValue("30s") Duration ttl,
        @DefaultValue("10s") Duration slice,
        @DefaultValue("5s") Duration grace,
        @DefaultValue("3s") Duration reconnect,
        @DefaultValue("false") boolean fallback,
        @DefaultValue Registry registry,
        @DefaultValue Shedlock shedlock,
        @DefaultValue Cache cache) {
    /**
     * {@code redis-lock.registry.*}.
     *
     * @param enabled whether there is a LockRegistry
     * @param keyPrefix prefix of the keys of all locks of the registry
     */
    public record Registry(
            @DefaultValue("true") boolean enabled,
            @DefaultValue(RedisLockRegistry.DEFAULT_PREFIX) String keyPrefix) {}

    /**
     * {@code redis-lock.shedlock.*}.
     *
     * @param enabled whether there is a LockProvider, where redis-lock-shedlock is on the class path
     * @param keyPrefix prefix of the keys of all locks of the provider
     */
    public record Shedlock(
            @DefaultValue("true") boolean enabled,
            @DefaultValue("job-lock:default:") String keyPrefix) {}

    /**
     * {@code redis-lock.cache.*}.
     *
     * @param enabled whether there is a CacheManager of which one caller loads a value for all
     * @param keep how long a value lives, without a RedisCacheConfiguration of the application
     * @param early from how long before its end a value is loaded again, half of its life at most
     * @param patience how long a caller waits for the one that loads
     */
    public record Cache(
            @DefaultValue("false") boolean enabled,
            @DefaultValue("60s") Duration keep,
            @DefaultValue("10s") Duration early,
            @DefaultValue("5s") Duration patience) {}
}
