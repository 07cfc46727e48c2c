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

    /** The scenarios say of which uses. */
    @Test
    void withoutTheOptionAnErrorSaysWhatToDo() {
        try (RedisLockClient locks = RedisLockClient.connect(server.url(), strict)) {
            String text = assertThrows(ModuleMissingException.class, locks.lock("a")::isLocked)
                    .getMessage();
            assertTrue(text.contains("no redis-lock module"), text);
            assertTrue(text.contains("loadmodule /path/libredis_lock.so"), text);
            assertTrue(text.contains("withFallback") && text.contains("no fence"), text);
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

    @Test
    void whatItCannotDoItSays() throws Exception {
        try (Way.Opened opened = Way.JEDIS.open(server.url(), lenient)) {
            RedisLockClient locks = opened.locks;
            RedisLock lock = locks.lock("mine");
            lock.lock();
            RedisHold hold = locks.lock("hold").acquire();
            List<Executable> uses = List.of(
                    () -> locks.semaphore("a", 2).availablePermits(),
                    () -> lock.exec("SET", "b", 1),
                    () -> hold.release(SECOND));
            for (Executable use : uses) {
                String text = assertThrows(ModuleMissingException.class, use).getMessage();
                assertTrue(text.contains("not available in the fallback"), text);
            }
            assertFalse(server.isLocked("hold") || hold.isHeld(), "it is given back all the same");
        }
    }

    @Test
    void aReleaseMayCountFromNow() {
        try (Way.Opened opened = Way.JEDIS.open(server.url(), lenient)) {
            opened.locks.lock("a").tryAcquire().releaseIn(Duration.ofMinutes(1));
            assertItLastsFor(Duration.ofMinutes(1));
        }
    }

    @Test
    void atAServerWithTheModuleTheOptionChangesNothing() {
        try (TestServer full = TestServer.start();
                RedisLockClient locks = RedisLockClient.connect(full.url(), lenient)) {
            assertTrue(locks.lock("a").tryAcquire().fence() > 0);
            assertEquals(List.of(), warnings.said);
        }
    }
}
