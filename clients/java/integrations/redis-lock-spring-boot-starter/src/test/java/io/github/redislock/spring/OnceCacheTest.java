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

import java.io.IOException;
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
        static final AtomicInteger MADE = new AtomicInteger();
        static volatile Callable<String> maker;

        @Cacheable(cacheNames = "pages", sync = true)
        public String page(int number) throws Exception {
            MADE.incrementAndGet();
            return maker.call();
        }
    }

    @BeforeEach
    void empty() {
        server.ask("FLUSHALL");
        Pages.MADE.set(0);
        Pages.maker = () -> "page";
    }

    private interface Action {
        void run(Pages pages, Cache cache) throws Exception;
    }

    private static ApplicationContextRunner caching(String driver, String... properties) {
        return application(driver, properties)
                .withPropertyValues("redis-lock.cache.enabled=true")
                .withBean(Pages.class);
    }

    private static void plays(ApplicationContextRunner runner, Action action) {
        runner.run(context -> action.run(
                context.getBean(Pages.class),
                context.getBean(CacheManager.class).getCache("pages")));
    }

    @ParameterizedTest
    @ValueSource(strings = {"jedis", "lettuce"})
    void oneCallerLoadsAndTheOthersGetIt(String driver) {
        plays(caching(driver, "redis-lock.cache.patience=30s"), (pages, cache) -> {
            CountDownLatch goesOn = new CountDownLatch(1);
            Pages.maker = () -> {
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
            assertThat(Pages.MADE).hasValue(1);
            assertThat(server.leftMs(KEY)).isBetween(20_000L, 60_000L);
            // All else is Spring Data's, at the same key.
            assertThat(cache.get(7, String.class)).isEqualTo("page");
            cache.evict(7);
            Eventually.isTrue("it is evicted", () -> !server.isLocked(KEY));
            cache.put(7, "put");
            assertThat(pages.page(7)).isEqualTo("put");
        });
    }

    @Test
    void whatIsLoadedWhileItsKeyIsEvictedIsNotStored() {
        plays(caching("lettuce"), (pages, cache) -> {
            Pages.maker = () -> {
                cache.evict(7);
                Eventually.isTrue("its lock is gone", () -> !server.isLocked(LOCK));
                return "stale";
            };
            assertThat(pages.page(7)).isEqualTo("stale");
            assertThat(server.isLocked(KEY)).isFalse();
        });
    }

    @Test
    void anEarlyValueIsLoadedAgainAndOutlivesAFailure() {
        var early = caching("lettuce", "redis-lock.cache.keep=60s", "redis-lock.cache.early=30s");
        plays(early, (pages, cache) -> {
            pages.page(7);
            server.ask("PEXPIRE", KEY, 25_000);
            Pages.maker = OnceCacheTest::fails;
            assertThat(pages.page(7)).isEqualTo("page");
            Pages.maker = () -> "new";
            assertThat(pages.page(7)).isEqualTo("new");
            assertThat(server.leftMs(KEY)).isGreaterThan(30_000L);
        });
    }

    private static String fails() throws IOException {
        throw new IOException("down");
    }

    @Test
    void nullIsAValueAndAnExceptionIsTheLoadersOwn() {
        plays(caching("lettuce"), (pages, cache) -> {
            Pages.maker = OnceCacheTest::fails;
            assertThatThrownBy(() -> pages.page(7)).isInstanceOf(IOException.class);
            assertThat(server.isLocked(LOCK)).isFalse();
            Pages.maker = () -> null;
            assertThat(pages.page(7)).isNull();
            assertThat(pages.page(7)).isNull();
            assertThat(Pages.MADE).hasValue(2);
        });
    }

    @Test
    void aWaitThatIsOverIsATimeout() {
        server.ask("LOCK.ACQUIRE", LOCK, "maker", 60_000);
        plays(caching("jedis", "redis-lock.cache.patience=0s"), (pages, cache) ->
                assertThatThrownBy(() -> pages.page(7)).isInstanceOf(QueryTimeoutException.class));
    }

    @Test
    void aCacheOfTheApplicationHasItsOwnTime() {
        RedisCacheConfiguration ever = RedisCacheConfiguration.defaultCacheConfig();
        RedisCacheConfiguration hour = ever.entryTtl(Duration.ofHours(1));
        var hourly = caching("lettuce").withBean(RedisCacheConfiguration.class, () -> hour);
        plays(hourly, (pages, cache) -> {
            pages.page(7);
            assertThat(server.leftMs(KEY)).isGreaterThan(3_000_000L);
        });
        var endless = caching("lettuce").withBean(RedisCacheConfiguration.class, () -> ever);
        plays(endless, (pages, cache) -> assertThatThrownBy(() -> pages.page(8))
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
