package io.github.redislock.spring;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.mockito.Mockito.doThrow;
import static org.mockito.Mockito.spy;

import io.github.redislock.*;
import io.github.redislock.testing.Eventually;
import io.github.redislock.testing.TestServer;

import org.junit.jupiter.api.*;

import java.time.Duration;
import java.util.concurrent.*;

class RedisLockRegistryTest extends ServerTest {
    private static final String KEY = RedisLockRegistry.DEFAULT_PREFIX + "a";
    private static final Duration FIVE_MINUTES = Duration.ofMinutes(5);

    /** Two processes, as far as the server can tell. */
    private RedisLockClient client;

    private RedisLockClient otherClient;
    private RedisLockRegistry first;
    private RedisLockRegistry second;
    private RedisRegistryLock lock;

    @BeforeEach
    void connect() {
        server.ask("FLUSHALL");
        client = RedisLockClient.connect(server.url());
        otherClient = RedisLockClient.connect(server.url());
        first = new RedisLockRegistry(client);
        second = new RedisLockRegistry(otherClient);
        lock = first.obtain("a");
    }

    @AfterEach
    void disconnect() {
        client.close();
        otherClient.close();
    }

    @Test
    void itIsReentrantPerThreadAndTwoRegistriesAreTwoProcesses() {
        lock.lock();
        first.obtain("a").lock();
        long fence = lock.fence();
        lock.unlock();
        assertThat(server.isLocked(KEY)).isTrue();
        assertThat(CompletableFuture.supplyAsync(first.obtain("a")::tryLock).join()).isFalse();
        assertThat(second.obtain("a").tryLock()).isFalse();
        lock.unlock();
        assertThat(second.obtain("a").tryLock()).isTrue();
        assertThat(second.obtain("a").fence()).isGreaterThan(fence);
        second.obtain("a").unlock();
        assertThat(server.isLocked(KEY)).isFalse();
    }

    @Test
    void tryLockTakesATimeToWaitAndATtlThatIsNotBelowZero() throws Exception {
        Duration below = Duration.ofMillis(-1);
        assertThatThrownBy(() -> lock.lock(below)).isInstanceOf(IllegalArgumentException.class);
        assertThatThrownBy(() -> lock.tryLock(Duration.ZERO, below))
                .isInstanceOf(IllegalArgumentException.class);
        assertThat(lock.tryLock(Duration.ZERO, FIVE_MINUTES)).isTrue();
        assertThat(server.leftMs(KEY)).isGreaterThan(240_000);
        assertThat(second.obtain("a").tryLock(Duration.ofMillis(20), FIVE_MINUTES)).isFalse();
    }

    @Test
    void aHoldIsRenewedByItsOwnerOnly() {
        lock.lock(Duration.ofSeconds(10));
        assertThatThrownBy(() -> second.renewLock("a"))
                .isInstanceOf(IllegalMonitorStateException.class);
        first.renewLock("a", FIVE_MINUTES);
        assertThat(server.leftMs(KEY)).isGreaterThan(240_000);
        first.renewLock("a");
        assertThat(server.leftMs(KEY)).isBetween(20_000L, 30_000L);
    }

    @Test
    void aRenewalThatFailsLeavesAHoldToTheWatchdog() {
        Duration brief = Duration.ofSeconds(3);
        try (TestServer bounded = TestServer.start("max-ttl", "3000");
                RedisLockClient mine = RedisLockClient.connect(
                        bounded.url(), LockOptions.defaults().withTtl(brief))) {
            RedisLockRegistry registry =
                    new RedisLockRegistry(mine, RedisLockRegistry.DEFAULT_PREFIX, brief);
            registry.obtain("a").lock();
            assertThatThrownBy(() -> registry.renewLock("a", FIVE_MINUTES))
                    .isInstanceOf(IllegalArgumentException.class);
            registry.renewLock("a");
            assertThat(bounded.calls("lock.check")).isOne();
            bounded.ask("CONFIG", "RESETSTAT");
            Eventually.isTrue("it is renewed", () -> bounded.calls("lock.renew") > 1);
            registry.obtain("a").unlock();
        }
    }

    @Test
    void aLostLockCannotBeRenewedAlsoWhereTheLossWasNoticed() {
        lock.lock();
        server.ask("DEL", KEY);
        for (int turn = 0; turn < 2; turn++) {
            assertThatThrownBy(() -> first.renewLock("a"))
                    .isInstanceOf(IllegalStateException.class);
            assertThatThrownBy(() -> first.renewLock("a", FIVE_MINUTES))
                    .isInstanceOf(IllegalStateException.class);
            assertThatThrownBy(lock::unlock).isInstanceOf(IllegalMonitorStateException.class);
            lock.lock(Duration.ofMillis(50));
            Eventually.isTrue("it is noticed", () -> !lock.isHeldByCurrentThread());
        }
    }

    /** A new hold would hide that others may have been in between. */
    @Test
    void aNestedLockDoesNotTakeALostLockAgain() {
        lock.lock();
        server.ask("DEL", KEY);
        assertThatThrownBy(lock::lock).isInstanceOf(IllegalMonitorStateException.class);
        assertThat(server.isLocked(KEY)).isFalse();
        lock.lock();
        server.ask("DEL", KEY);
        assertThatThrownBy(() -> lock.tryLock(1, TimeUnit.SECONDS))
                .isInstanceOf(IllegalMonitorStateException.class);
        lock.lock(); // The loss is told, so this is a new hold.
        assertThat(server.isLocked(KEY)).isTrue();
        lock.unlock();
        assertThat(server.isLocked(KEY)).isFalse();
    }

    /** It comes in the moment after the flag was taken down. */
    @Test
    void anInterruptDoesNotTakeANestedLockForALoss() throws Exception {
        RedisLock real = spy(client.lock(KEY));
        doThrow(new InterruptedException())
                .doCallRealMethod()
                .when(real)
                .tryLock(0, -1, TimeUnit.MILLISECONDS);
        RedisRegistryLock nested = new RedisRegistryLock(real, new ConcurrentHashMap<>());
        nested.lock();
        nested.lock();
        assertThat(Thread.interrupted()).isTrue();
        nested.unlock();
        assertThat(server.isLocked(KEY)).isTrue();
        nested.unlock();
        assertThat(server.isLocked(KEY)).isFalse();
    }

    @Test
    void destroyWaitsForAThreadThatIsAboutToUnlockButNotForEver() throws Exception {
        CompletableFuture<Void> held = new CompletableFuture<>();
        CompletableFuture<Void> stopped = new CompletableFuture<>();
        CompletableFuture<Void> working = CompletableFuture.runAsync(() -> {
            lock.lock();
            held.complete(null);
            stopped.join();
            lock.unlock();
        });
        held.join();
        first.destroy();
        assertThat(server.isLocked(KEY)).isTrue();
        stopped.complete(null);
        first.destroy();
        assertThat(server.isLocked(KEY)).isFalse();
        working.join();
    }
}
