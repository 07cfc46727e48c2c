package io.github.redislock.spring;

import io.github.redislock.testing.TestServer;

import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;

import org.springframework.boot.autoconfigure.AutoConfigurations;
import org.springframework.boot.test.context.runner.ApplicationContextRunner;
import org.springframework.util.ClassUtils;

import java.util.ArrayList;
import java.util.List;
import java.util.stream.Stream;

/** Tests with a server of their class. */
abstract class ServerTest {
    static TestServer server;

    @BeforeAll
    static void start() {
        server = TestServer.start();
    }

    @AfterAll
    static void stop() {
        server.close();
    }

    /** A context that connects to the server. */
    static ApplicationContextRunner application(String driver, String... properties) {
        return runner(driver, properties)
                .withPropertyValues("spring.data.redis.port=" + server.port());
    }

    /** With the auto-configurations that an application would have; by jedis or lettuce. */
    static ApplicationContextRunner runner(String driver, String... properties) {
        List<Class<?>> configurations =
                new ArrayList<>(List.of(RedisLockAutoConfiguration.class));
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
}
