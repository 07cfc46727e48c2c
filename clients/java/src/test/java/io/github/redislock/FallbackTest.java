package io.github.redislock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.lettuce.core.RedisClient;

import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInstance;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.logging.Handler;
import java.util.logging.LogRecord;
import java.util.logging.Logger;

/** A server without the module. */
@TestInstance(TestInstance.Lifecycle.PER_CLASS)
class FallbackTest {
    private static final int THREADS = 8;
    private static final int TURNS = 10;

    private final LinkedBlockingQueue<LostLock> lost = new LinkedBlockingQueue<>();
    private final LockOptions strict =
            LockOptions.defaults().withTtl(Duration.ofSeconds(2)).withOnLost(lost::add);
    private final LockOptions lenient = strict.withFallback(true);
    private final Logger log = Logger.getLogger("io.github.redislock");
    private final List<String> warnings = new CopyOnWriteArrayList<>();
    private final Handler handler = new Handler() {
        @Override
        public void publish(LogRecord line) {
            warnings.add(java.text.MessageFormat.format(line.getMessage(), line.getParameters()));
        }

        @Override
        public void flush() {}

        @Override
        public void close() {}
    };
    private TestServer server;
    private Other other;

    @BeforeAll
    void startServer() {
        server = TestServer.start(TestServer.VERSION, "--without-module");
        log.setLevel(java.util.logging.Level.WARNING);
        log.addHandler(handler);
    }

    @AfterAll
    void stopServer() {
        log.removeHandler(handler);
        server.close();
    }

    @BeforeEach
    void begin() {
        server.redis.flushAll();
        warnings.clear();
        lost.clear();
        other = new Other();
    }

    @AfterEach
    void endOther() {
        other.close();
    }

    @ParameterizedTest
    @EnumSource(names = {"JEDIS", "JEDIS_UNIFIED", "LETTUCE_CLIENT"})
    void withoutTheOptionAnErrorSaysWhatToDo(Driver driver) {
        try (Driver.Opened opened = driver.open(server.url(), strict)) {
            RedisLockClient locks = opened.locks;
            List<Executable> uses = List.of(
                    () -> locks.lock("a").lock(),
                    () -> locks.lock("a").tryLock(),
                    () -> locks.lock("a").isLocked(),
                    () -> locks.semaphore("a", 2).acquire(),
                    () -> locks.readWriteLock("a").readLock().lock(),
                    () -> locks.multiLock(locks.lock("a"), locks.lock("b")).lock(),
                    () -> locks.runOnce(
                            "a", Duration.ofSeconds(2), Duration.ofSeconds(1), hold -> {}));
            for (Executable use : uses) {
                String text = assertThrows(ModuleMissingException.class, use).getMessage();
                assertTrue(text.contains("no redis-lock module"), text);
                assertTrue(text.contains("loadmodule /path/libredis_lock.so"), text);
                assertTrue(text.contains("withFallback") && text.contains("no fence"), text);
            }
            assertEquals(List.of(), warnings);
            assertFalse(server.redis.exists("a"));
        }
    }

    @ParameterizedTest
    @EnumSource(names = {"JEDIS", "JEDIS_UNIFIED", "LETTUCE_CLIENT"})
    void oneThreadAtATime(Driver driver) {
        try (Driver.Opened first = driver.open(server.url(), lenient);
                Driver.Opened second = driver.open(server.url(), lenient)) {
            AtomicInteger inside = new AtomicInteger();
            int[] unguarded = {0};
            List<Other> others = new ArrayList<>();
            List<Future<Void>> ends = new ArrayList<>();
            for (int number = 0; number < THREADS; number++) {
                Other waiter = new Other();
                RedisLock lock = (number % 2 == 0 ? first : second).locks.lock("a");
                others.add(waiter);
                ends.add(waiter.starts(() -> {
                    for (int turn = 0; turn < TURNS; turn++) {
                        lock.lock();
                        assertEquals(1, inside.incrementAndGet());
                        assertEquals(0, lock.fence());
                        unguarded[0]++;
                        inside.decrementAndGet();
                        lock.unlock();
                    }
                }));
            }
            ends.forEach(Other::result);
            others.forEach(Other::close);
            assertEquals(THREADS * TURNS, unguarded[0]);
            assertFalse(server.redis.exists("a"));
            assertEquals(2, warnings.size(), "one per client: " + warnings);
            assertTrue(warnings.get(0).contains("no fair queue, no fence"), warnings.get(0));
        }
    }

    @Test
    void aLateOwnerChangesNothing() throws Exception {
        try (Driver.Opened first = Driver.JEDIS.open(server.url(), lenient);
                Driver.Opened second = Driver.LETTUCE.open(server.url(), lenient)) {
            RedisLock late = first.locks.lock("a");
            RedisHold hold = late.tryAcquire(0, 60, TimeUnit.SECONDS);
            assertNotNull(hold);
            server.redis.del("a"); // As by an eviction.
            RedisHold next = second.locks.lock("a").tryAcquire(0, 60, TimeUnit.SECONDS);
            assertThrows(IllegalMonitorStateException.class, hold::release);
            assertFalse(hold.renew(Duration.ofSeconds(5)));
            assertTrue(next.check());
            assertEquals(next.id(), server.redis.get("a"));
            assertTrue(server.redis.pttl("a") > 50_000);
            next.release();
        }
    }

    @ParameterizedTest
    @EnumSource(names = {"JEDIS", "JEDIS_UNIFIED", "LETTUCE_CLIENT"})
    void aHoldIsRenewedAndGivenBack(Driver driver) throws Exception {
        try (Driver.Opened opened = driver.open(server.url(), lenient)) {
            RedisLock lock = opened.locks.lock("a");
            lock.lock();
            lock.lock();
            Eventually.pause(2_500); // Renewed.
            assertTrue(lock.check() && lock.isLocked());
            assertFalse(other.does(() -> lock.tryLock(100, TimeUnit.MILLISECONDS)));
            assertTrue(lock.renew(Duration.ofMinutes(1)));
            assertTrue(server.redis.pttl("a") > 50_000);
            CountDownLatch begun = new CountDownLatch(1);
            Future<Void> waiting = other.starts(() -> {
                begun.countDown();
                lock.lockInterruptibly();
            });
            assertTrue(begun.await(20, TimeUnit.SECONDS));
            other.thread.interrupt();
            assertInstanceOf(
                    InterruptedException.class,
                    assertThrows(ExecutionException.class, () -> waiting.get(20, TimeUnit.SECONDS))
                            .getCause());
            lock.unlock();
            lock.unlock();
            assertFalse(lock.isLocked());
            assertNull(lost.poll());

            lock.lock();
            server.redis.del("a");
            assertNotNull(lost.poll(20, TimeUnit.SECONDS));
            assertThrows(IllegalMonitorStateException.class, lock::unlock);
        }
    }

    @Test
    void whatItCannotDoItSays() throws Exception {
        try (Driver.Opened opened = Driver.JEDIS.open(server.url(), lenient)) {
            RedisLockClient locks = opened.locks;
            RedisLock lock = locks.lock("mine");
            lock.lock();
            RedisHold hold = locks.lock("hold").acquire();
            List<Executable> uses = List.of(
                    () -> locks.semaphore("a", 2).acquire(),
                    () -> locks.readWriteLock("a").readLock().tryLock(),
                    () -> locks.multiLock(locks.lock("a"), locks.lock("b")).lock(),
                    () -> lock.exec("SET", "b", 1),
                    () -> hold.release(Duration.ofSeconds(1)));
            for (Executable use : uses) {
                String text = assertThrows(ModuleMissingException.class, use).getMessage();
                assertTrue(text.contains("not available in the fallback"), text);
            }
            assertEquals(1, warnings.size());
        }
    }

    @Test
    void theSameWithoutThreads() throws Exception {
        RedisClient lettuce = RedisClient.create(server.url());
        try (LettuceLockClient no = LettuceLockClient.connect(lettuce, strict);
                LettuceLockClient locks = LettuceLockClient.connect(lettuce, lenient)) {
            for (CompletableFuture<?> refused :
                    List.of(no.lock("a").lock(), no.lock("a").tryLock())) {
                Throwable cause = assertThrows(
                                ExecutionException.class, () -> refused.get(20, TimeUnit.SECONDS))
                        .getCause();
                assertInstanceOf(ModuleMissingException.class, cause);
            }
            AsyncHold hold = Other.result(locks.lock("a").lock());
            assertEquals(0, hold.fence());
            CompletableFuture<AsyncHold> waiting = locks.lock("a").lock();
            assertTrue(Other.result(locks.lock("a").tryLock(Duration.ofMillis(200)))
                    .isEmpty());
            Eventually.pause(2_500); // Renewed.
            assertTrue(Other.result(hold.check()));
            assertTrue(Other.result(hold.unlock()));
            AsyncHold next = Other.result(waiting);
            assertTrue(Other.result(next.renew(Duration.ofMinutes(1))));
            assertTrue(Other.result(next.unlock()));
            assertFalse(server.redis.exists("a"));
            assertEquals(1, warnings.size());
            assertThrows(
                    ModuleMissingException.class,
                    () -> Other.result(locks.semaphore("a", 2).acquire()));
        } finally {
            lettuce.shutdown(Duration.ZERO, Duration.ofSeconds(2));
        }
    }

    @ParameterizedTest
    @EnumSource(names = {"JEDIS", "LETTUCE"})
    void atAServerWithTheModuleTheOptionChangesNothing(Driver driver) {
        try (TestServer full = TestServer.start();
                Driver.Opened opened = driver.open(full.url(), lenient)) {
            RedisLock lock = opened.locks.lock("a");
            lock.lock();
            assertTrue(lock.fence() > 0);
            assertEquals("redislock", full.redis.type("a"));
            lock.unlock();
            assertEquals(List.of(), warnings);
        }
    }
}
