package io.github.redislock.spring;

import io.github.redislock.RedisLockClient;

import org.springframework.beans.factory.ObjectProvider;
import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.*;
import org.springframework.cache.CacheManager;
import org.springframework.context.annotation.Bean;
import org.springframework.data.redis.cache.RedisCacheConfiguration;
import org.springframework.data.redis.cache.RedisCacheWriter;
import org.springframework.data.redis.connection.RedisConnectionFactory;

/** An {@link OnceCacheManager} in place of the one of Spring Boot, where that is wanted. */
@AutoConfiguration(
        after = RedisLockAutoConfiguration.class,
        beforeName = {
            "org.springframework.boot.autoconfigure.cache.CacheAutoConfiguration",
            "org.springframework.boot.cache.autoconfigure.CacheAutoConfiguration"
        })
@ConditionalOnClass(RedisConnectionFactory.class)
@ConditionalOnBean({RedisLockClient.class, RedisConnectionFactory.class})
@ConditionalOnProperty(prefix = "redis-lock.cache", name = "enabled")
public class OnceCacheAutoConfiguration {
    /** For Spring. */
    public OnceCacheAutoConfiguration() {}

    @Bean
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
