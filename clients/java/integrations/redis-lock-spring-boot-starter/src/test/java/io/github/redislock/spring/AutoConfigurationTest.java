package io.github.redislock.spring;

import static org.assertj.core.api.Assertions.assertThat;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.github.redislock.*;
import io.github.redislock.shedlock.RedisLockProvider;
import io.github.redislock.testing.Eventually;

import net.javacrumbs.shedlock.core.*;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import org.springframework.boot.test.context.FilteredClassLoader;
import org.springframework.context.annotation.Bean;
import org.springframework.context.event.EventListener;
import org.springframework.integration.support.locks.DefaultLockRegistry;
import org.springframework.integration.support.locks.LockRegistry;
import org.springframework.util.ClassUtils;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;

class AutoConfigurationTest extends ServerTest {
    @ParameterizedTest
    @ValueSource(strings = {"jedis", "lettuce"})
    void thereAreAClientAndARegistryWhoseConnectionsEndWithTheContext(String driver) {
        int before = server.connections();
        application(driver).run(context -> {
            var lock = context.getBean(LockRegistry.class).obtain("a");
            lock.lock();
            assertThat(server.isLocked("lock-registry:a")).isTrue();
            lock.unlock();
            assertThat(server.isLocked("lock-registry:a")).isFalse();
            assertThat(context).hasSingleBean(RedisLockClient.class);
            assertThat(context).hasSingleBean(RedisLockRegistry.class);
            assertThat(server.connections()).isGreaterThan(before);
        });
        Eventually.isTrue("they are closed", () -> server.connections() <= before);
    }

    @ParameterizedTest
    @ValueSource(strings = {"jedis", "lettuce"})
    void itLogsInWithTheApplicationsUserToItsDatabase(String driver) {
        // No right but those of the role worker in the documents, and those to ask for a database.
        String rights = "~lock-registry:* resetchannels -@all"
                + " +lock.acquire +lock.release +lock.renew +lock.check +select";
        server.ask((Object[]) ("ACL SETUSER app on >pass:w@rd/% " + rights).split(" "));
        application(
                        driver,
                        "spring.data.redis.username=app",
                        "spring.data.redis.password=pass:w@rd/%",
                        "spring.data.redis.database=3")
                .run(context -> {
                    RedisLockRegistry registry = context.getBean(RedisLockRegistry.class);
                    RedisRegistryLock lock = registry.obtain("a");
                    lock.lock(Duration.ofMinutes(1));
                    registry.renewLock("a", Duration.ofMinutes(2));
                    assertThat(server.isLocked("lock-registry:a")).isFalse();
                    assertThat(server.ask("INFO", "keyspace").toString()).contains("db3:");
                    lock.unlock();
                    lock.lock();
                    registry.renewLock("a");
                    lock.unlock();
                });
    }

    /** With a name Jedis takes a pool. */
    @ParameterizedTest
    @ValueSource(strings = {"jedis", "lettuce"})
    void theConnectionsHaveTheApplicationsName(String driver) {
        application(driver, "spring.data.redis.client-name=" + driver + "-app").run(context -> {
            var lock = context.getBean(RedisLockRegistry.class).obtain("named");
            // Its connection stays, which that of one that waits need not.
            assertThat(lock.tryLock()).isTrue();
            assertThat(server.ask("CLIENT", "LIST").toString()).contains("name=" + driver + "-app");
            lock.unlock();
        });
    }

    @Test
    void thePropertiesAreBound() {
        application(
                        "jedis",
                        "redis-lock.ttl=12s",
                        "redis-lock.slice=4s",
                        "redis-lock.grace=2s",
                        "redis-lock.reconnect=1s",
                        "redis-lock.fallback=true",
                        "redis-lock.registry.key-prefix=mine:",
                        "redis-lock.shedlock.key-prefix=jobs:")
                .run(context -> {
                    LockOptions options = context.getBean(LockOptions.class);
                    assertThat(options.ttl()).isEqualTo(Duration.ofSeconds(12));
                    assertThat(options.slice()).isEqualTo(Duration.ofSeconds(4));
                    assertThat(options.grace()).isEqualTo(Duration.ofSeconds(2));
                    assertThat(options.reconnect()).isEqualTo(Duration.ofSeconds(1));
                    assertThat(options.fallback()).isTrue();
                    RedisLockRegistry registry = context.getBean(RedisLockRegistry.class);
                    assertThat(registry.obtain("a").getKey()).isEqualTo("mine:a");
                    context.getBean(LockProvider.class).lock(oneMinute("a"));
                    assertThat(server.isLocked("jobs:a")).isTrue();
                    registry.obtain("a").lock();
                    assertThat(server.leftMs("mine:a")).isBetween(5_000L, 12_000L);
                    registry.obtain("a").unlock();
                });
    }

    @Test
    void theRegistryIsOneOfDistributedLocksForSpringIntegration7() {
        assumeTrue(ClassUtils.isPresent(
                "org.springframework.integration.support.locks.DistributedLock", null));
        application("jedis").withBean("seven", WithSpringIntegration7.class).run(context -> {
            WithSpringIntegration7 bean = context.getBean(WithSpringIntegration7.class);
            bean.lockForAMinute("seven");
            assertThat(server.leftMs("lock-registry:seven")).isGreaterThan(30_000);
            bean.locks.obtain("seven").unlock();
        });
    }

    @Test
    void itCanBeSwitchedOff() {
        runner("jedis", "redis-lock.enabled=false")
                .run(context -> assertThat(context).doesNotHaveBean(RedisLockClient.class));
        application(
                        "jedis",
                        "redis-lock.registry.enabled=false",
                        "redis-lock.shedlock.enabled=false")
                .run(context -> {
                    assertThat(context).hasSingleBean(RedisLockClient.class);
                    assertThat(context).doesNotHaveBean(LockRegistry.class);
                    assertThat(context).doesNotHaveBean(LockProvider.class);
                });
    }

    @Test
    void beansOfTheApplicationComeFirst() {
        try (RedisLockClient own = RedisLockClient.connect(server.url())) {
            application("jedis")
                    .withBean(RedisLockClient.class, () -> own)
                    .withBean(LockRegistry.class, DefaultLockRegistry::new)
                    .withBean(LockOptions.class, LockOptions::defaults)
                    .run(context -> {
                        assertThat(context.getBean(RedisLockClient.class)).isSameAs(own);
                        assertThat(context).doesNotHaveBean(RedisLockConnection.class);
                        assertThat(context).doesNotHaveBean(RedisLockRegistry.class);
                        assertThat(context).hasSingleBean(RedisLockProvider.class);
                    });
        }
    }

    @Test
    void withoutSpringIntegrationAndShedLockThereIsTheClientOnly() {
        application("jedis")
                .withClassLoader(
                        new FilteredClassLoader(LockRegistry.class, RedisLockProvider.class))
                .run(context -> {
                    assertThat(context).hasNotFailed();
                    assertThat(context).hasSingleBean(RedisLockClient.class);
                    assertThat(context).doesNotHaveBean("redisLockRegistry");
                    assertThat(context).doesNotHaveBean("redisLockProvider");
                });
    }

    @Test
    void aLostLockIsAnEvent() {
        application("jedis", "redis-lock.ttl=300ms")
                .withUserConfiguration(Listening.class)
                .run(context -> {
                    context.getBean(RedisLockRegistry.class).obtain("lost").lock();
                    server.ask("DEL", "lock-registry:lost");
                    List<LostLock> news = context.getBean(Listener.class).news;
                    Eventually.isTrue("it is told", () -> !news.isEmpty());
                    assertThat(news.get(0).name()).isEqualTo("lock-registry:lost");
                    // A slow listener delays no clock.
                    assertThat(context.getBean(Listener.class).thread).isEqualTo("redis-lock-lost");
                });
    }

    static class Listening {
        @Bean
        Listener listener() {
            return new Listener();
        }
    }

    static class Listener {
        final List<LostLock> news = new CopyOnWriteArrayList<>();
        volatile String thread;

        @EventListener
        void lost(LostLock lost) {
            thread = Thread.currentThread().getName();
            news.add(lost);
        }
    }

    private static LockConfiguration oneMinute(String name) {
        return new LockConfiguration(
                ClockProvider.now(), name, Duration.ofMinutes(1), Duration.ZERO);
    }
}
