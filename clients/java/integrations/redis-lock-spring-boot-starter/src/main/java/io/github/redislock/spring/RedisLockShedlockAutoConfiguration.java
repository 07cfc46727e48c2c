package io.github.redislock.spring;

import io.github.redislock.RedisLockClient;
import io.github.redislock.shedlock.RedisLockProvider;

import net.javacrumbs.shedlock.core.LockProvider;

import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.*;
import org.springframework.context.annotation.Bean;

/** A {@link RedisLockProvider} where ShedLock and redis-lock-shedlock are on the class path. */
@AutoConfiguration(after = RedisLockAutoConfiguration.class)
@ConditionalOnClass({LockProvider.class, RedisLockProvider.class})
@ConditionalOnBean(RedisLockClient.class)
@ConditionalOnProperty(prefix = "redis-lock.shedlock", name = "enabled", matchIfMissing = true)
public class RedisLockShedlockAutoConfiguration {
    /** For Spring. */
    public RedisLockShedlockAutoConfiguration() {}

    @Bean
    @ConditionalOnMissingBean(LockProvider.class)
    RedisLockProvider redisLockProvider(RedisLockClient client, RedisLockProperties properties) {
        return new RedisLockProvider(client, properties.shedlock().keyPrefix());
    }
}
