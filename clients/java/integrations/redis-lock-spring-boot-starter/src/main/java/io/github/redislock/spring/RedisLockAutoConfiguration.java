package io.github.redislock.spring;

import io.github.redislock.LockOptions;
import io.github.redislock.RedisLockClient;
import io.github.redislock.shedlock.RedisLockProvider;

import net.javacrumbs.shedlock.core.LockProvider;

import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnClass;
import org.springframework.boot.autoconfigure.condition.ConditionalOnMissingBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnProperty;
import org.springframework.boot.autoconfigure.condition.ConditionalOnSingleCandidate;
import org.springframework.boot.context.properties.EnableConfigurationProperties;
import org.springframework.context.ApplicationEventPublisher;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.data.redis.connection.RedisConnectionFactory;
import org.springframework.integration.support.locks.LockRegistry;

/**
 * Locks over the application's {@code spring.data.redis.*}: a {@link RedisLockClient}, and where
 * their libraries are on the class path a {@link RedisLockRegistry} for Spring Integration and a
 * lock provider for ShedLock.
 *
 * <p>A lock that is lost is published as an event, a {@link io.github.redislock.LostLock}.
 */
@AutoConfiguration(
        afterName = {
            "org.springframework.boot.autoconfigure.data.redis.RedisAutoConfiguration",
            "org.springframework.boot.data.redis.autoconfigure.DataRedisAutoConfiguration"
        },
        beforeName = {
            "org.springframework.boot.autoconfigure.integration.IntegrationAutoConfiguration",
            "org.springframework.boot.integration.autoconfigure.IntegrationAutoConfiguration"
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
        return LockOptions.defaults()
                .withTtl(properties.getTtl())
                .withSlice(properties.getSlice())
                .withGrace(properties.getGrace())
                .withReconnect(properties.getReconnect())
                .withOnLost(publisher::publishEvent);
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

    /** For Spring Integration, and all that takes its locks. */
    @Configuration(proxyBeanMethods = false)
    @ConditionalOnClass(LockRegistry.class)
    @ConditionalOnBean(RedisLockClient.class)
    @ConditionalOnMissingBean(LockRegistry.class)
    @ConditionalOnProperty(
            prefix = "redis-lock.registry",
            name = "enabled",
            matchIfMissing = true)
    static class Registry {
        @Bean
        RedisLockRegistry redisLockRegistry(
                RedisLockClient client, RedisLockProperties properties, LockOptions options) {
            return new RedisLockRegistry(
                    client, properties.getRegistry().getKeyPrefix(), options.ttl());
        }
    }

    /** For ShedLock. */
    @Configuration(proxyBeanMethods = false)
    @ConditionalOnClass({LockProvider.class, RedisLockProvider.class})
    @ConditionalOnBean(RedisLockClient.class)
    @ConditionalOnMissingBean(LockProvider.class)
    @ConditionalOnProperty(
            prefix = "redis-lock.shedlock",
            name = "enabled",
            matchIfMissing = true)
    static class Shedlock {
        @Bean
        RedisLockProvider redisLockProvider(
                RedisLockClient client, RedisLockProperties properties) {
            return new RedisLockProvider(client, properties.getShedlock().getKeyPrefix());
        }
    }
}
