package io.github.redislock.spring;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.mockito.Mockito.doThrow;
import static org.mockito.Mockito.spy;

import io.github.redislock.*;
import io.github.redislock.testing.Eventually;
import io.github.redislock.testing.TestServer;

import org.junit.jupiter.api.*;

import org.springframework.integration.support.locks.LockRegistry;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.*;

class RedisLockRegistryTest extends ServerTest {
    private static final String KEY = RedisLockRegistry.DEFAULT_PREFIX + "a";

    private final List<RedisLockClient> clients = new ArrayList<>();
    private final ExecutorService executor = Executors.newCachedThreadPool();

    /** Two processes, as far as the server can tell. */
    private RedisLockRegistry first;

    private RedisLockRegistry second;

    @BeforeEach
    void connect() {
        server.ask("FLUSHALL");
        first = registry(LockOptions.defaults());
        second = registry(LockOptions.defaults());
    }

    @AfterEach
    void disconnect() {
        executor.shutdownNow();
        clients.forEach(RedisLockClient::close);
    }

    private RedisLockRegistry registry(LockOptions options) {
        RedisLockClient client = RedisLockClient.connect(server.url(), options);
        clients.add(client);
        return new RedisLockRegistry(client, RedisLockRegistry.DEFAULT_PREFIX, options.ttl());
    }

    private <T> Future<T> elsewhere(Callable<T> work) {
        return executor.submit(work);
    }

    @Test
    void twoRegistriesAreTwoProcesses() {
        first.obtain("a").lock();
        assertThat(server.isLocked(KEY)).isTrue();
        long fence = first.obtain("a").fence();
        assertThat(second.obtain("a").tryLock()).isFalse();
        first.obtain("a").unlock();
        assertThat(second.obtain("a").tryLock()).isTrue();
        assertThat(second.obtain("a").fence()).isGreaterThan(fence);
        second.obtain("a").unlock();
        assertThat(server.isLocked(KEY)).isFalse();
    }

    @Test
    void aTtlBelowZeroIsRefused() {
        RedisRegistryLock lock = first.obtain("a");
        Duration below = Duration.ofMillis(-1);
        assertThatThrownBy(() -> lock.lock(below)).isInstanceOf(IllegalArgumentException.class);
        assertThatThrownBy(() -> lock.tryLock(Duration.ZERO, below))
                .isInstanceOf(IllegalArgumentException.class);
        assertThat(server.isLocked(KEY)).isFalse();
    }

    @Test
    void itIsReentrantPerThread() throws Exception {
        first.obtain("a").lock();
        first.obtain("a").lock();
        first.obtain("a").unlock();
        assertThat(server.isLocked(KEY)).isTrue();
        assertThat(elsewhere(() -> first.obtain("a").tryLock()).get()).isFalse();
        first.obtain("a").unlock();
        assertThat(server.isLocked(KEY)).isFalse();
    }

    @Test
    void tryLockTakesATimeToWaitAndATtl() throws Exception {
        assertThat(first.obtain("a").tryLock(Duration.ZERO, Duration.ofMinutes(5)))
                .isTrue();
        assertThat(server.leftMs(KEY)).isGreaterThan(Duration.ofMinutes(4).toMillis());
        assertThat(second.obtain("a").tryLock(Duration.ofMillis(20), Duration.ofMinutes(5)))
                .isFalse();
    }

    @Test
    void aHoldIsRenewedByItsOwnerOnly() {
        first.obtain("a").lock(Duration.ofSeconds(10));
        assertThatThrownBy(() -> second.renewLock("a"))
                .isInstanceOf(IllegalMonitorStateException.class);
        first.renewLock("a", Duration.ofMinutes(5));
        assertThat(server.leftMs(KEY)).isGreaterThan(Duration.ofMinutes(4).toMillis());
        first.renewLock("a");
        assertThat(server.leftMs(KEY)).isBetween(20_000L, 30_000L);
    }

    @Test
    void aRenewalThatFailsLeavesAHoldToTheWatchdog() {
        try (TestServer bounded = TestServer.start(TestServer.VERSION, "max-ttl", "3000");
                RedisLockClient client = RedisLockClient.connect(
                        bounded.url(), LockOptions.defaults().withTtl(Duration.ofSeconds(3)))) {
            RedisLockRegistry brief = new RedisLockRegistry(
                    client, RedisLockRegistry.DEFAULT_PREFIX, Duration.ofSeconds(3));
            brief.obtain("a").lock();
            assertThatThrownBy(() -> brief.renewLock("a", Duration.ofMinutes(5)))
                    .isInstanceOf(IllegalArgumentException.class);
            brief.renewLock("a");
            assertThat(bounded.calls("lock.check")).isOne();
            bounded.ask("CONFIG", "RESETSTAT");
            Eventually.isTrue("it is renewed", () -> bounded.calls("lock.renew") > 1);
            brief.obtain("a").unlock();
        }
    }

    @Test
    void aLostLockCannotBeRenewed() {
        first.obtain("a").lock();
        server.ask("DEL", KEY);
        assertThatThrownBy(() -> first.renewLock("a")).isInstanceOf(IllegalStateException.class);
        assertThatThrownBy(() -> first.obtain("a").unlock())
                .isInstanceOf(IllegalMonitorStateException.class);
    }

    @Test
    void aLossThatWasNoticedIsToldByRenewLock() {
        RedisRegistryLock lock = first.obtain("a");
        lock.lock(Duration.ofMillis(50));
        Eventually.isTrue("it is noticed", () -> !lock.isHeldByCurrentThread());
        assertThatThrownBy(() -> first.renewLock("a")).isInstanceOf(IllegalStateException.class);
        assertThatThrownBy(() -> first.renewLock("a", Duration.ofMinutes(1)))
                .isInstanceOf(IllegalStateException.class);
    }

    /** A new hold would hide that others may have been in between. */
    @Test
    void aNestedLockDoesNotTakeALostLockAgain() {
        RedisRegistryLock lock = first.obtain("a");
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
        RedisLock real = spy(clients.get(0).lock(KEY));
        doThrow(new InterruptedException())
                .doCallRealMethod()
                .when(real)
                .tryLock(0, -1, TimeUnit.MILLISECONDS);
        RedisRegistryLock lock = new RedisRegistryLock(real, new RedisRegistryLock.Depths());
        lock.lock();
        lock.lock();
        assertThat(Thread.interrupted()).isTrue();
        lock.unlock();
        assertThat(server.isLocked(KEY)).isTrue();
        lock.unlock();
        assertThat(server.isLocked(KEY)).isFalse();
    }

    @Test
    @SuppressWarnings({"rawtypes", "unchecked"})
    void executeLockedGuardsItsTask() throws Throwable {
        LockRegistry registry = first;
        Object locked = registry.executeLocked("a", () -> server.isLocked(KEY));
        assertThat(locked).isEqualTo(true);
        assertThat(server.isLocked(KEY)).isFalse();
        second.obtain("a").lock();
        assertThatThrownBy(() -> registry.executeLocked(
                        "a", Duration.ofMillis(50), () -> "not to be reached"))
                .isInstanceOf(TimeoutException.class);
    }

    @Test
    void destroyWaitsForAThreadThatIsAboutToUnlock() throws Exception {
        CompletableFuture<Void> held = new CompletableFuture<>();
        CompletableFuture<Void> stopped = new CompletableFuture<>();
        Future<?> working = elsewhere(() -> {
            first.obtain("a").lock();
            held.complete(null);
            stopped.join();
            first.obtain("a").unlock();
            return null;
        });
        held.join();
        Future<?> destroying = elsewhere(() -> {
            first.destroy();
            return null;
        });
        stopped.complete(null);
        destroying.get(20, TimeUnit.SECONDS);
        assertThat(server.isLocked(KEY)).isFalse();
        working.get();
    }

    @Test
    void destroyDoesNotWaitForEver() throws Exception {
        first.obtain("a").lock();
        long begin = System.nanoTime();
        first.destroy();
        assertThat(Duration.ofNanos(System.nanoTime() - begin)).isLessThan(Duration.ofSeconds(10));
    }
}
