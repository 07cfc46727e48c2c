package io.github.redislock.spring;

import io.github.redislock.LockOptions;
import io.github.redislock.RedisLockClient;
import io.github.redislock.shedlock.RedisLockProvider;

import net.javacrumbs.shedlock.core.LockProvider;

import org.springframework.beans.factory.ObjectProvider;
import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.*;
import org.springframework.boot.context.properties.EnableConfigurationProperties;
import org.springframework.cache.CacheManager;
import org.springframework.context.ApplicationEventPublisher;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.core.annotation.Order;
import org.springframework.data.redis.cache.RedisCacheConfiguration;
import org.springframework.data.redis.cache.RedisCacheWriter;
import org.springframework.data.redis.connection.RedisConnectionFactory;
import org.springframework.integration.support.locks.LockRegistry;

/**
 * A {@link RedisLockClient} over the application's {@code spring.data.redis.*}, and what is made
 * of it. Each part is there where its library is on the class path, and the client comes first.
 *
 * <p>A lock that is lost is logged, and published as an event, a {@link
 * io.github.redislock.LostLock}. Its listeners run on threads that only do that.
 */
@AutoConfiguration(
        afterName = {
            "org.springframework.boot.autoconfigure.data.redis.RedisAutoConfiguration",
            "org.springframework.boot.data.redis.autoconfigure.DataRedisAutoConfiguration"
        },
        beforeName = {
            "org.springframework.boot.autoconfigure.cache.CacheAutoConfiguration",
            "org.springframework.boot.cache.autoconfigure.CacheAutoConfiguration"
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

    /** Unless the application has a client of its own. The other parts look for it. */
    @Order(0)
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

    /** Where Spring Integration is. */
    @Configuration(proxyBeanMethods = false)
    @ConditionalOnClass(LockRegistry.class)
    @ConditionalOnBean(RedisLockClient.class)
    @ConditionalOnProperty(prefix = "redis-lock.registry", name = "enabled", matchIfMissing = true)
    static class Registry {
        @Bean
        @ConditionalOnMissingBean(LockRegistry.class)
        RedisLockRegistry redisLockRegistry(
                RedisLockClient client, RedisLockProperties properties, LockOptions options) {
            return new RedisLockRegistry(
                    client, properties.registry().keyPrefix(), options.ttl());
        }
    }

    /** Where ShedLock and redis-lock-shedlock are. */
    @Configuration(proxyBeanMethods = false)
    @ConditionalOnClass({LockProvider.class, RedisLockProvider.class})
    @ConditionalOnBean(RedisLockClient.class)
    @ConditionalOnProperty(prefix = "redis-lock.shedlock", name = "enabled", matchIfMissing = true)
    static class ShedLock {
        @Bean
        @ConditionalOnMissingBean(LockProvider.class)
        RedisLockProvider redisLockProvider(
                RedisLockClient client, RedisLockProperties properties) {
            return new RedisLockProvider(client, properties.shedlock().keyPrefix());
        }
    }

    /** In place of the cache manager of Spring Boot, where that is wanted. */
    @Bean
    @ConditionalOnBean({RedisLockClient.class, RedisConnectionFactory.class})
    @ConditionalOnProperty(prefix = "redis-lock.cache", name = "enabled")
    @ConditionalOnMissingBean(CacheManager.class)
    OnceCacheManager onceCacheManager(
            RedisConnectionFactory factory,
            ObjectProvider<RedisCacheConfiguration> defaults,
            RedisLockClient client,
            RedisLockProperties properties) {
        RedisLockProperties.Cache its = properties.cache();
        return new OnceCacheManager(
                RedisCacheWriter.nonLockingRedisCacheWriter(factory),
                defaults.getIfUnique(() ->
                        RedisCacheConfiguration.defaultCacheConfig().entryTtl(its.keep())),
                client,
                how -> how.withEarly(its.early()).withPatience(its.patience()));
    }
}
