package io.github.redislock.spring;

import io.github.redislock.LockOptions;
import io.github.redislock.RedisLockClient;

import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.*;
import org.springframework.boot.context.properties.EnableConfigurationProperties;
import org.springframework.context.ApplicationEventPublisher;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.data.redis.connection.RedisConnectionFactory;

/**
 * A {@link RedisLockClient} over the application's {@code spring.data.redis.*}.
 *
 * <p>A lock that is lost is logged, and published as an event, a {@link
 * io.github.redislock.LostLock}. Its listeners run on threads that only do that.
 */
@AutoConfiguration(
        afterName = {
            "org.springframework.boot.autoconfigure.data.redis.RedisAutoConfiguration",
            "org.springframework.boot.data.redis.autoconfigure.DataRedisAutoConfiguration"
        })
@ConditionalOnClass(RedisConnectionFactory.class)
@ConditionalOnProperty(prefix = "redis-lock", name = "enabled", matchIfMissing = true)
@EnableConfigurationProperties(RedisLockProperties.class)
public class RedisLockAutoConfiguration {
    /** For Spring. */
    public RedisLockAutoConfiguration() {}

    @Bean
    @ConditionalOnMissingBean
    LockOptions redisLockOptions(
            RedisLockProperties properties, ApplicationEventPublisher publisher) {
        LockOptions defaults = LockOptions.defaults();
        return defaults
                .withTtl(properties.ttl())
                .withSlice(properties.slice())
                .withGrace(properties.grace())
                .withReconnect(properties.reconnect())
                .withFallback(properties.fallback())
                .withOnLost(defaults.onLost().andThen(publisher::publishEvent));
    }

    /** Unless the application has a client of its own. */
    @Configuration(proxyBeanMethods = false)
    @ConditionalOnMissingBean(RedisLockClient.class)
    @ConditionalOnSingleCandidate(RedisConnectionFactory.class)
    static class Client {
        @Bean
        RedisLockConnection redisLockConnection(
                RedisConnectionFactory factory, LockOptions options) {
            return RedisLockConnection.like(factory, options);
        }

        @Bean
        RedisLockClient redisLockClient(RedisLockConnection connection) {
            return connection.client();
        }
    }
}
