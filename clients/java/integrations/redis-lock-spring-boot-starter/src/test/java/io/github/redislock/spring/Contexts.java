package io.github.redislock.spring;

import org.springframework.boot.autoconfigure.AutoConfigurations;
import org.springframework.boot.test.context.runner.ApplicationContextRunner;
import org.springframework.util.ClassUtils;

import java.util.ArrayList;
import java.util.List;
import java.util.stream.Stream;

/** Application contexts with the auto-configurations that an application would have. */
final class Contexts {
    private Contexts() {}

    /** {@code driver} is jedis or lettuce. */
    static ApplicationContextRunner runner(String driver, String... properties) {
        List<Class<?>> configurations = new ArrayList<>(List.of(
                RedisLockAutoConfiguration.class,
                RedisLockRegistryAutoConfiguration.class,
                RedisLockShedlockAutoConfiguration.class));
        // Their names in Spring Boot 3, and in 4.
        Stream.of(
                        "org.springframework.boot.autoconfigure.data.redis.RedisAutoConfiguration",
                        "org.springframework.boot.data.redis.autoconfigure.DataRedisAutoConfiguration")
                .filter(name -> ClassUtils.isPresent(name, null))
                .forEach(name -> configurations.add(ClassUtils.resolveClassName(name, null)));
        return new ApplicationContextRunner()
                .withConfiguration(AutoConfigurations.of(configurations.toArray(new Class<?>[0])))
                .withPropertyValues("spring.data.redis.client-type=" + driver)
                .withPropertyValues(properties);
    }

    static String port(int port) {
        return "spring.data.redis.port=" + port;
    }
}
