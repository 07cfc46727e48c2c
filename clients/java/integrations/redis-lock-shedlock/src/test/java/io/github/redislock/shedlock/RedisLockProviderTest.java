package io.github.redislock.shedlock;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.github.redislock.LockOptions;
import io.github.redislock.RedisLockClient;
import io.github.redislock.testing.Eventually;
import io.github.redislock.testing.TestServer;

import net.javacrumbs.shedlock.core.ClockProvider;
import net.javacrumbs.shedlock.core.DefaultLockingTaskExecutor;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.LockExtender;
import net.javacrumbs.shedlock.core.LockProvider;
import net.javacrumbs.shedlock.core.SimpleLock;
import net.javacrumbs.shedlock.support.KeepAliveLockProvider;

import org.junit.jupiter.api.*;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.*;

class RedisLockProviderTest {
    private static final String NAME = "report";
    private static final String KEY = RedisLockProvider.DEFAULT_PREFIX + NAME;
    private static final Duration MINUTE = Duration.ofMinutes(1);

    private static TestServer server;

    /** Two processes, as far as the server can tell. */
    private RedisLockClient client;

    private RedisLockClient otherClient;
    private LockProvider provider;
    private LockProvider other;

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
        otherClient = RedisLockClient.connect(server.url());
        provider = new RedisLockProvider(client);
        other = new RedisLockProvider(otherClient);
    }

    @AfterEach
    void disconnect() {
        client.close();
        otherClient.close();
    }

    @Test
    void theServerKeepsLockAtLeastForThoughTheClientIsClosed() {
        lock(provider, MINUTE, Duration.ofSeconds(30)).unlock();
        client.close();
        assertThat(server.leftMs(KEY)).isBetween(20_000L, 30_000L);
        assertThat(other.lock(configuration(MINUTE, Duration.ZERO))).isEmpty();
    }

    @Test
    void aLockThatIsExtendedIsKeptFromTheExtensionOn() throws Exception {
        long askedNanos = System.nanoTime();
        SimpleLock lock = lock(provider, MINUTE, Duration.ZERO);
        long grantedWithinMs = (System.nanoTime() - askedNanos) / 1_000_000;
        Thread.sleep(200);
        long leastMs = 20_000;
        long extendedNanos = System.nanoTime();
        lock.extend(MINUTE, Duration.ofMillis(leastMs)).orElseThrow().unlock();
        long leftMs = server.leftMs(KEY);
        long sinceMs = (System.nanoTime() - extendedNanos) / 1_000_000;
        // A few milliseconds are lost to rounding. Counted from the grant it were 200 fewer.
        assertThat(leftMs).isBetween(leastMs - sinceMs - 50, leastMs + grantedWithinMs + 50);
    }

    @ParameterizedTest
    @ValueSource(longs = {0, 800})
    void aLockThatIsExtendedIsKeptThoughTheSumIsAboveMaxTtl(long workMs) {
        try (TestServer bounded = TestServer.start(TestServer.VERSION, "max-ttl", "3000");
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

    /** The server's clock decides when it is over, and a job may be at work until then. */
    @Test
    void lockAtMostForIsNotCutByTheClientsClock() {
        Duration most = Duration.ofSeconds(4);
        long startNanos = System.nanoTime();
        lock(provider, most, most);
        Eventually.isTrue("it ends", () -> !server.isLocked(KEY));
        assertThat(Duration.ofNanos(System.nanoTime() - startNanos))
                .isGreaterThanOrEqualTo(most.minusMillis(1));
    }

    @Test
    void lockAtMostForIsTheTtlAndAnExtensionMayBringItForward() {
        SimpleLock lock = lock(provider, MINUTE, Duration.ZERO);
        assertThat(server.leftMs(KEY)).isBetween(50_000L, 60_000L);
        lock.extend(Duration.ofSeconds(5), Duration.ZERO);
        assertThat(server.leftMs(KEY)).isBetween(1L, 5_000L);
    }

    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void anOwnerThatWasOvertakenExtendsAndUnlocksNothing(boolean extend) {
        SimpleLock late = lock(provider, MINUTE, Duration.ZERO);
        server.ask("PEXPIRE", KEY, "1");
        Eventually.isTrue("it has ended", () -> !server.isLocked(KEY));
        SimpleLock newer = lock(other, MINUTE, Duration.ZERO);
        assertThat(((RedisSimpleLock) newer).fence())
                .isGreaterThan(((RedisSimpleLock) late).fence());
        if (extend) {
            assertThat(late.extend(Duration.ofMinutes(5), Duration.ZERO)).isEmpty();
            assertThat(server.leftMs(KEY)).isLessThanOrEqualTo(MINUTE.toMillis());
        } else {
            late.unlock();
        }
        assertThat(server.isLocked(KEY)).isTrue();
        newer.unlock();
        assertThat(server.isLocked(KEY)).isFalse();
    }

    @Test
    void aGuardedCommandRunsOnlyWhileTheLockIsHeld() {
        RedisSimpleLock lock = (RedisSimpleLock) lock(provider, MINUTE, Duration.ZERO);
        assertThat(lock.exec("SET", "written", 1)).isEqualTo("OK");
        server.ask("DEL", KEY);
        assertThatThrownBy(() -> lock.exec("SET", "written", 2))
                .isInstanceOf(IllegalMonitorStateException.class);
        assertThat(server.ask("GET", "written")).isEqualTo("1");
    }

    @Test
    void aJobMayExtendItsLockByLockExtender() {
        DefaultLockingTaskExecutor executor = new DefaultLockingTaskExecutor(provider);
        List<Long> left = new ArrayList<>();
        executor.executeWithLock(
                (Runnable) () -> {
                    LockExtender.extendActiveLock(Duration.ofMinutes(5), Duration.ZERO);
                    left.add(server.leftMs(KEY));
                },
                configuration(MINUTE, Duration.ZERO));
        assertThat(left.get(0)).isGreaterThan(MINUTE.toMillis());
        assertThat(server.isLocked(KEY)).isFalse();
    }

    @Test
    void keepAliveLockProviderRenewsIt() {
        // It renews after half of lockAtMostFor, which is 30 s at least: too long for a test.
        ScheduledThreadPoolExecutor hasty = new ScheduledThreadPoolExecutor(1) {
            @Override
            public ScheduledFuture<?> scheduleAtFixedRate(
                    Runnable task, long delay, long period, TimeUnit unit) {
                return super.scheduleAtFixedRate(task, 20, 20, TimeUnit.MILLISECONDS);
            }
        };
        try {
            Duration most = Duration.ofSeconds(30);
            SimpleLock lock = new KeepAliveLockProvider(new RedisLockProvider(client), hasty)
                    .lock(configuration(most, Duration.ZERO))
                    .orElseThrow();
            server.ask("PEXPIRE", KEY, "10000");
            Eventually.isTrue("it is renewed", () -> server.leftMs(KEY) > 10_000);
            lock.unlock();
            assertThat(server.isLocked(KEY)).isFalse();
        } finally {
            hasty.shutdownNow();
        }
    }

    /** The old provider's lock is a string that it sets by SET NX PX. */
    @Test
    void theOldProviderAndThisOneExcludeEachOtherDuringARollingChange() {
        server.ask("SET", KEY, "ADDED:by-the-old-one", "NX", "PX", "60000");
        assertThat(provider.lock(configuration(MINUTE, Duration.ZERO))).isEmpty();
        server.ask("DEL", KEY);
        SimpleLock lock = lock(provider, MINUTE, Duration.ZERO);
        assertThat(server.ask("SET", KEY, "ADDED:by-the-old-one", "NX", "PX", "60000"))
                .isNull();
        lock.unlock();
    }

    @Test
    void aThreadThatIsInterruptedGetsNoLockAndKeepsItsFlag() {
        Thread.currentThread().interrupt();
        try {
            assertThatThrownBy(() -> provider.lock(configuration(MINUTE, Duration.ZERO)))
                    .isInstanceOf(RuntimeException.class);
        } finally {
            assertThat(Thread.interrupted()).isTrue();
        }
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

    /** No right but those of the role {@code worker} in the documents. */
    @Test
    void itWorksWithTheRightsOfAWorker() {
        String rights = "~job-lock:* resetchannels -@all +lock.acquire +lock.release +lock.renew";
        server.ask((Object[]) ("ACL SETUSER worker on >secret " + rights).split(" "));
        String url = "redis://worker:secret@127.0.0.1:" + server.port();
        try (RedisLockClient worker = RedisLockClient.connect(url)) {
            LockProvider mine = new RedisLockProvider(worker);
            SimpleLock lock = lock(mine, MINUTE, Duration.ZERO);
            assertThat(mine.lock(configuration(MINUTE, Duration.ZERO))).isEmpty();
            lock.extend(MINUTE, Duration.ZERO).orElseThrow().unlock();
            assertThat(server.isLocked(KEY)).isFalse();
            lock(mine, MINUTE, Duration.ofSeconds(30)).unlock();
            assertThat(server.isLocked(KEY)).isTrue();
        }
    }

    private static SimpleLock lock(LockProvider provider, Duration most, Duration least) {
        return provider.lock(configuration(most, least)).orElseThrow();
    }

    private static LockConfiguration configuration(Duration most, Duration least) {
        return new LockConfiguration(ClockProvider.now(), NAME, most, least);
    }
}
