package io.github.redislock.shedlock;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.github.redislock.LockOptions;
import io.github.redislock.RedisLockClient;
import io.github.redislock.testing.Eventually;
import io.github.redislock.testing.TestServer;

import net.javacrumbs.shedlock.core.*;

import org.junit.jupiter.api.*;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import java.time.Duration;

class RedisLockProviderTest {
    private static final String NAME = "report";
    private static final String KEY = RedisLockProvider.DEFAULT_PREFIX + NAME;
    private static final Duration MINUTE = Duration.ofMinutes(1);

    private static TestServer server;

    private RedisLockClient client;
    private LockProvider provider;

    @BeforeAll
    static void start() {
        server = TestServer.start();
    }

    @AfterAll
    static void stop() {
        server.close();
    }

    @BeforeEach
    void connect() {
        server.ask("FLUSHALL");
        client = RedisLockClient.connect(server.url());
        provider = new RedisLockProvider(client);
    }

    @AfterEach
    void disconnect() {
        client.close();
    }

    @Test
    void theServerKeepsLockAtLeastForThoughTheClientIsClosed() {
        SimpleLock lock = lock(provider, MINUTE, Duration.ofSeconds(30));
        assertThat(server.leftMs(KEY)).isBetween(50_000L, 60_000L);
        lock.unlock();
        client.close();
        assertThat(server.leftMs(KEY)).isBetween(20_000L, 30_000L);
        client = RedisLockClient.connect(server.url());
        provider = new RedisLockProvider(client);
        assertThat(provider.lock(configuration(MINUTE, Duration.ZERO))).isEmpty();
    }

    /** Also where the sum of that and of the time since the grant is above max-ttl. */
    @ParameterizedTest
    @ValueSource(longs = {0, 800})
    void aLockThatIsExtendedIsKeptFromTheExtensionOn(long workMs) {
        try (TestServer bounded = TestServer.start("max-ttl", "3000");
                RedisLockClient mine = RedisLockClient.connect(bounded.url())) {
            Duration most = Duration.ofSeconds(3);
            long leastMs = workMs == 0 ? 3_000 : workMs;
            SimpleLock lock = lock(new RedisLockProvider(mine), most, Duration.ZERO);
            Eventually.pause(2_400);
            long extendedNanos = System.nanoTime();
            SimpleLock extended =
                    lock.extend(most, Duration.ofMillis(leastMs)).orElseThrow();
            Eventually.pause(workMs);
            extended.unlock();
            assertThat(bounded.isLocked(KEY)).isEqualTo(workMs == 0);
            Eventually.isTrue("it ends", () -> !bounded.isLocked(KEY));
            assertThat(System.nanoTime() - extendedNanos)
                    .isGreaterThanOrEqualTo((leastMs - 1) * 1_000_000);
        }
    }

    @Test
    void anOwnerThatWasOvertakenExtendsAndUnlocksNothing() {
        RedisSimpleLock late = lock(provider, MINUTE, Duration.ZERO);
        server.ask("PEXPIRE", KEY, "1");
        Eventually.isTrue("it has ended", () -> !server.isLocked(KEY));
        RedisSimpleLock newer = lock(provider, MINUTE, Duration.ZERO);
        assertThat(newer.fence()).isGreaterThan(late.fence());
        assertThatThrownBy(() -> late.exec("SET", "written", 1))
                .isInstanceOf(IllegalMonitorStateException.class);
        assertThat(late.extend(Duration.ofMinutes(5), Duration.ZERO)).isEmpty();
        assertThat(server.leftMs(KEY)).isLessThanOrEqualTo(MINUTE.toMillis());
        assertThat(newer.exec("SET", "written", 2)).isEqualTo("OK");
        newer.unlock();
        RedisSimpleLock lost = lock(provider, MINUTE, Duration.ZERO);
        server.ask("DEL", KEY);
        lost.unlock();
        assertThat(server.isLocked(KEY)).isFalse();
    }

    /** The old provider's lock is a string that it sets by SET NX PX. */
    @Test
    void theOldProviderAndThisOneExcludeEachOtherDuringARollingChange() {
        server.ask("SET", KEY, "ADDED:by-the-old-one", "NX", "PX", "60000");
        assertThat(provider.lock(configuration(MINUTE, Duration.ZERO))).isEmpty();
        server.ask("DEL", KEY);
        lock(provider, MINUTE, Duration.ZERO);
        assertThat(server.ask("SET", KEY, "ADDED:by-the-old-one", "NX", "PX", "60000"))
                .isNull();
    }

    @Test
    void aThreadThatIsInterruptedGetsNoLockAndKeepsItsFlag() {
        Thread.currentThread().interrupt();
        assertThatThrownBy(() -> provider.lock(configuration(MINUTE, Duration.ZERO)))
                .isInstanceOf(RuntimeException.class);
        assertThat(Thread.interrupted()).isTrue();
        assertThat(server.isLocked(KEY)).isFalse();
    }

    @Test
    void inTheFallbackItLocksButRefusesLockAtLeastForBeforeTheJob() {
        try (TestServer plain = TestServer.withoutModule();
                RedisLockClient mine = RedisLockClient.connect(
                        plain.url(), LockOptions.defaults().withFallback(true))) {
            LockProvider fallback = new RedisLockProvider(mine);
            SimpleLock lock = lock(fallback, MINUTE, Duration.ZERO);
            assertThat(fallback.lock(configuration(MINUTE, Duration.ZERO))).isEmpty();
            lock.unlock();
            assertThatThrownBy(() -> lock(fallback, MINUTE, Duration.ofSeconds(1)))
                    .isInstanceOf(UnsupportedOperationException.class)
                    .hasMessageContaining("lockAtLeastFor");
            assertThat(plain.isLocked(KEY)).isFalse();
        }
    }

    private static RedisSimpleLock lock(LockProvider provider, Duration most, Duration least) {
        return (RedisSimpleLock) provider.lock(configuration(most, least)).orElseThrow();
    }

    private static LockConfiguration configuration(Duration most, Duration least) {
        return new LockConfiguration(ClockProvider.now(), NAME, most, least);
    }
}
