package io.github.redislock.spring;

import io.github.redislock.LockOptions;
import io.github.redislock.RedisLockClient;

import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.*;
import org.springframework.context.annotation.Bean;
import org.springframework.integration.support.locks.LockRegistry;

/** A {@link RedisLockRegistry} where Spring Integration is on the class path. */
@AutoConfiguration(after = RedisLockAutoConfiguration.class)
@ConditionalOnClass(LockRegistry.class)
@ConditionalOnBean(RedisLockClient.class)
@ConditionalOnProperty(prefix = "redis-lock.registry", name = "enabled", matchIfMissing = true)
public class RedisLockRegistryAutoConfiguration {
    /** For Spring. */
    public RedisLockRegistryAutoConfiguration() {}

    @Bean
    @ConditionalOnMissingBean(LockRegistry.class)
    RedisLockRegistry redisLockRegistry(
            RedisLockClient client, RedisLockProperties properties, LockOptions options) {
        return new RedisLockRegistry(
                client, properties.registry().keyPrefix(), options.ttl());
    }
}
