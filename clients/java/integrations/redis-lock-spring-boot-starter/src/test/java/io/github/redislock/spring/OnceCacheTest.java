package io.github.redislock.spring;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.github.redislock.testing.Eventually;

import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import org.springframework.boot.test.context.runner.ApplicationContextRunner;
import org.springframework.cache.Cache;
import org.springframework.cache.CacheManager;
import org.springframework.cache.annotation.Cacheable;
import org.springframework.cache.annotation.EnableCaching;
import org.springframework.cache.concurrent.ConcurrentMapCacheManager;
import org.springframework.dao.QueryTimeoutException;
import org.springframework.data.redis.cache.RedisCacheConfiguration;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.*;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Stream;

class OnceCacheTest extends ServerTest {
    private static final String KEY = "pages::7";
    private static final String LOCK = "{pages::7}:once";

    @EnableCaching
    static class Pages {
        final AtomicInteger made = new AtomicInteger();
        volatile Callable<String> maker = () -> "page";

        @Cacheable(cacheNames = "pages", sync = true)
        public String page(int number) throws Exception {
            made.incrementAndGet();
            return maker.call();
        }
    }

    @BeforeEach
    void empty() {
        server.ask("FLUSHALL");
    }

    private static ApplicationContextRunner caching(String driver, String... properties) {
        return application(driver, properties)
                .withPropertyValues("redis-lock.cache.enabled=true")
                .withBean(Pages.class);
    }

    /** Of a bean whose methods are proxied, so its fields are not. */
    private static Pages target(Object bean) throws Exception {
        return (Pages) ((org.springframework.aop.framework.Advised) bean)
                .getTargetSource()
                .getTarget();
    }

    @ParameterizedTest
    @ValueSource(strings = {"jedis", "lettuce"})
    void oneCallerLoadsAndTheOthersGetIt(String driver) {
        caching(driver, "redis-lock.cache.patience=30s").run(context -> {
            Pages pages = context.getBean(Pages.class);
            Pages target = target(pages);
            CountDownLatch goesOn = new CountDownLatch(1);
            target.maker = () -> {
                goesOn.await();
                return "page";
            };
            ExecutorService crowd = Executors.newFixedThreadPool(5);
            List<Future<String>> all = Stream.generate(() -> crowd.submit(() -> pages.page(7)))
                    .limit(5)
                    .toList();
            Eventually.isTrue("the others wait", () -> server.waiting(LOCK) == 4);
            goesOn.countDown();
            for (Future<String> each : all) {
                assertThat(each.get(30, TimeUnit.SECONDS)).isEqualTo("page");
            }
            crowd.shutdown();
            assertThat(target.made).hasValue(1);
            assertThat(server.leftMs(KEY)).isBetween(20_000L, 60_000L);
            // All else is Spring Data's, at the same key.
            Cache cache = context.getBean(CacheManager.class).getCache("pages");
            assertThat(cache.get(7, String.class)).isEqualTo("page");
            cache.evict(7);
            Eventually.isTrue("it is evicted", () -> !server.isLocked(KEY));
            cache.put(7, "put");
            assertThat(pages.page(7)).isEqualTo("put");
        });
    }

    @Test
    void whatIsLoadedWhileItsKeyIsEvictedIsNotStored() {
        caching("lettuce").run(context -> {
            Cache cache = context.getBean(CacheManager.class).getCache("pages");
            target(context.getBean(Pages.class)).maker = () -> {
                cache.evict(7);
                Eventually.isTrue("its lock is gone", () -> !server.isLocked(LOCK));
                return "stale";
            };
            assertThat(context.getBean(Pages.class).page(7)).isEqualTo("stale");
            assertThat(server.isLocked(KEY)).isFalse();
        });
    }

    @Test
    void anEarlyValueIsLoadedAgainAndOutlivesAFailure() {
        caching("lettuce", "redis-lock.cache.keep=60s", "redis-lock.cache.early=30s")
                .run(context -> {
                    Pages pages = context.getBean(Pages.class);
                    target(pages).maker = () -> "old";
                    pages.page(7);
                    server.ask("PEXPIRE", KEY, 25_000);
                    target(pages).maker = () -> {
                        throw new java.io.IOException("down");
                    };
                    assertThat(pages.page(7)).isEqualTo("old");
                    target(pages).maker = () -> "new";
                    assertThat(pages.page(7)).isEqualTo("new");
                    assertThat(server.leftMs(KEY)).isGreaterThan(30_000L);
                });
    }

    @Test
    void nullIsAValueAndAnExceptionIsTheLoadersOwn() {
        caching("lettuce").run(context -> {
            Pages pages = context.getBean(Pages.class);
            target(pages).maker = () -> {
                throw new java.io.IOException("down");
            };
            assertThatThrownBy(() -> pages.page(7)).isInstanceOf(java.io.IOException.class);
            assertThat(server.isLocked(LOCK)).isFalse();
            target(pages).maker = () -> null;
            assertThat(pages.page(7)).isNull();
            assertThat(pages.page(7)).isNull();
            assertThat(target(pages).made).hasValue(2);
        });
    }

    @Test
    void aWaitThatIsOverIsATimeout() {
        server.ask("LOCK.ACQUIRE", LOCK, "maker", 60_000);
        caching("jedis", "redis-lock.cache.patience=0s").run(context -> {
            Pages pages = context.getBean(Pages.class);
            assertThatThrownBy(() -> pages.page(7)).isInstanceOf(QueryTimeoutException.class);
        });
    }

    @Test
    void aCacheOfTheApplicationHasItsOwnTime() {
        RedisCacheConfiguration hour =
                RedisCacheConfiguration.defaultCacheConfig().entryTtl(Duration.ofHours(1));
        caching("lettuce").withBean(RedisCacheConfiguration.class, () -> hour).run(context -> {
            context.getBean(Pages.class).page(7);
            assertThat(server.leftMs(KEY)).isGreaterThan(3_000_000L);
        });
        RedisCacheConfiguration ever = RedisCacheConfiguration.defaultCacheConfig();
        caching("lettuce").withBean(RedisCacheConfiguration.class, () -> ever).run(context ->
                assertThatThrownBy(() -> context.getBean(Pages.class).page(8))
                        .hasMessage("the cache pages needs an entryTtl"));
    }

    @Test
    void itIsThereOnlyWhereItIsWanted() {
        application("lettuce").run(context ->
                assertThat(context).doesNotHaveBean(CacheManager.class));
        caching("lettuce")
                .withBean(ConcurrentMapCacheManager.class)
                .run(context -> assertThat(context).doesNotHaveBean(OnceCacheManager.class));
    }
}
