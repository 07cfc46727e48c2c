package io.github.redislock;

import static org.junit.jupiter.api.Assertions.*;

import io.github.redislock.testing.TestServer;

import org.junit.jupiter.api.*;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.*;

/** A server without the module. */
class FallbackTest extends ServerTest {
    private static final Duration SECOND = Duration.ofSeconds(1);
    private final LockOptions strict = LockOptions.defaults().withOnLost(lost::add);
    private final LockOptions lenient = strict.withFallback(true);
    private Warnings warnings;

    @Override
    TestServer newServer() {
        return TestServer.withoutModule();
    }

    @BeforeEach
    void beginToNote() {
        warnings = new Warnings();
    }

    @AfterEach
    void endToNote() {
        warnings.close();
    }

    @ParameterizedTest
    @EnumSource(names = {"JEDIS", "JEDIS_UNIFIED", "LETTUCE_CLIENT"})
    void withoutTheOptionAnErrorSaysWhatToDo(Way way) {
        try (Way.Opened opened = way.open(server.url(), strict)) {
            RedisLockClient locks = opened.locks;
            List<Executable> uses = List.of(
                    () -> locks.lock("a").lock(),
                    () -> locks.lock("a").isLocked(),
                    () -> locks.semaphore("a", 2).acquire(),
                    () -> locks.multiLock(locks.lock("a"), locks.lock("b")).lock(),
                    () -> locks.runOnce("a", SECOND, SECOND, hold -> {}));
            for (Executable use : uses) {
                String text = assertThrows(ModuleMissingException.class, use).getMessage();
                assertTrue(text.contains("no redis-lock module"), text);
                assertTrue(text.contains("loadmodule /path/libredis_lock.so"), text);
                assertTrue(text.contains("withFallback") && text.contains("no fence"), text);
            }
            assertEquals(List.of(), warnings.said);
        }
    }

    @ParameterizedTest
    @EnumSource
    void eachClientSaysOnceWhatIsLost(Way way) {
        try (Way.Opened first = way.open(server.url(), lenient);
                Way.Opened second = way.open(server.url(), lenient)) {
            for (int turn = 0; turn < 2; turn++) {
                first.take("a").release();
                second.take("a").release();
            }
            assertEquals(2, warnings.said.size(), warnings.said.toString());
            assertTrue(warnings.said.get(0).contains("no fair queue, no fence"));
        }
    }

    @ParameterizedTest
    @EnumSource(names = {"JEDIS", "JEDIS_UNIFIED", "LETTUCE_CLIENT"})
    void anInterruptEndsAWait(Way way) throws Exception {
        try (Way.Opened opened = way.open(server.url(), lenient)) {
            RedisLock lock = opened.locks.lock("a");
            lock.lock();
            lock.lock();
            CountDownLatch begun = new CountDownLatch(1);
            Future<Void> waiting = other.starts(() -> {
                begun.countDown();
                lock.lockInterruptibly();
            });
            assertTrue(begun.await(20, TimeUnit.SECONDS));
            interrupt(waiting);
            lock.unlock();
            lock.unlock();
            assertFalse(lock.isLocked());
        }
    }

    @Test
    void whatItCannotDoItSays() throws Exception {
        try (Way.Opened opened = Way.JEDIS.open(server.url(), lenient)) {
            RedisLockClient locks = opened.locks;
            RedisLock lock = locks.lock("mine");
            lock.lock();
            RedisHold hold = locks.lock("hold").acquire();
            List<Executable> uses = List.of(
                    () -> locks.semaphore("a", 2).acquire(),
                    () -> locks.semaphore("a", 2).availablePermits(),
                    () -> locks.readWriteLock("a").readLock().tryLock(),
                    () -> locks.multiLock(locks.lock("a"), locks.lock("b")).lock(),
                    () -> lock.exec("SET", "b", 1),
                    () -> hold.release(SECOND));
            for (Executable use : uses) {
                String text = assertThrows(ModuleMissingException.class, use).getMessage();
                assertTrue(text.contains("not available in the fallback"), text);
            }
        }
    }

    @ParameterizedTest
    @EnumSource(names = {"JEDIS", "LETTUCE_FUTURES"})
    void aLeastTimeGivesTheLockBackAndSaysSo(Way way) {
        try (Way.Opened opened = way.open(server.url(), lenient)) {
            Held hold = opened.take("a");
            assertThrows(
                    ModuleMissingException.class, () -> hold.releases().accept(SECOND));
            assertFalse(server.isLocked("a") || hold.isHeld());
        }
    }

    @Test
    void aReleaseMayCountFromNow() {
        try (Way.Opened opened = Way.JEDIS.open(server.url(), lenient)) {
            opened.locks.lock("a").tryAcquire().releaseIn(Duration.ofMinutes(1));
            assertItLastsFor(Duration.ofMinutes(1));
        }
    }

    @ParameterizedTest
    @EnumSource(names = {"JEDIS", "LETTUCE"})
    void atAServerWithTheModuleTheOptionChangesNothing(Way way) {
        try (TestServer full = TestServer.start();
                Way.Opened opened = way.open(full.url(), lenient)) {
            assertTrue(opened.take("a").fence() > 0);
            assertEquals("redislock", full.ask("TYPE", "a"));
            assertEquals(List.of(), warnings.said);
        }
    }
}
