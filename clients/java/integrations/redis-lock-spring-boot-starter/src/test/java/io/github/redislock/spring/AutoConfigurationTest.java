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
import org.springframework.context.ApplicationListener;
import org.springframework.context.PayloadApplicationEvent;
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
        // With a name Jedis takes a pool.
        for (String[] named : new String[][] {{}, {"spring.data.redis.client-name=an-app"}}) {
            application(driver, named).run(context -> {
                var lock = context.getBean(LockRegistry.class).obtain("a");
                // Its connection stays, which that of one that waits need not.
                assertThat(lock.tryLock()).isTrue();
                assertThat(server.isLocked("lock-registry:a")).isTrue();
                assertThat(server.ask("CLIENT", "LIST").toString().contains("name=an-app"))
                        .isEqualTo(named.length > 0);
                lock.unlock();
                assertThat(server.isLocked("lock-registry:a")).isFalse();
                assertThat(context).hasSingleBean(RedisLockClient.class);
                assertThat(context).hasSingleBean(RedisLockRegistry.class);
                assertThat(server.connections()).isGreaterThan(before);
            });
            Eventually.isTrue("they are closed", () -> server.connections() <= before);
        }
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
                    assertThat(options.toString())
                            .contains("ttl=PT12S, slice=PT4S, grace=PT2S, reconnect=PT1S")
                            .contains("fallback=true");
                    RedisLockRegistry registry = context.getBean(RedisLockRegistry.class);
                    registry.obtain("a").lock();
                    assertThat(server.leftMs("mine:a")).isBetween(5_000L, 12_000L);
                    registry.obtain("a").unlock();
                    context.getBean(LockProvider.class)
                            .lock(new LockConfiguration(
                                    ClockProvider.now(),
                                    "a",
                                    Duration.ofMinutes(1),
                                    Duration.ZERO));
                    assertThat(server.isLocked("jobs:a")).isTrue();
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

    /** On a thread of its own: a slow listener delays no clock. */
    @Test
    void aLostLockIsAnEvent() {
        List<String> news = new CopyOnWriteArrayList<>();
        ApplicationListener<PayloadApplicationEvent<LostLock>> listener =
                event -> news.add(Thread.currentThread().getName() + event.getPayload().name());
        application("jedis", "redis-lock.ttl=300ms")
                .withInitializer(context -> context.addApplicationListener(listener))
                .run(context -> {
                    context.getBean(RedisLockRegistry.class).obtain("lost").lock();
                    server.ask("DEL", "lock-registry:lost");
                    Eventually.isTrue("it is told", () -> !news.isEmpty());
                    assertThat(news).containsExactly("redis-lock-lostlock-registry:lost");
                });
    }
}
