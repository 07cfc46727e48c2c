package io.github.redislock;

import static org.junit.jupiter.api.Assertions.*;

import io.github.redislock.testing.TestServer;

import org.junit.jupiter.api.*;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

import java.util.List;

/** A server without the module. The scenarios say what it can do. */
class FallbackTest extends ServerTest {
    private final LockOptions lenient = patient.withFallback(true);
    private List<String> said;

    @Override
    TestServer newServer() {
        return TestServer.withoutModule();
    }

    @BeforeEach
    void beginToNote() {
        said = warnings();
    }

    @Test
    void withoutTheOptionAnErrorSaysWhatToDo() {
        String text = assertThrows(ModuleMissingException.class, locks.lock("a")::isLocked)
                .getMessage();
        for (String part : List.of(
                "no redis-lock module",
                "loadmodule /path/libredis_lock.so",
                "withFallback",
                "no fence")) {
            assertTrue(text.contains(part), text);
        }
        assertEquals(List.of(), said);
    }

    @ParameterizedTest
    @EnumSource
    void eachClientSaysOnceWhatIsLost(Way way) {
        Way.Opened first = by(way, lenient);
        Way.Opened second = by(way, lenient);
        for (int turn = 0; turn < 2; turn++) {
            first.take("a").release();
            second.take("a").release();
        }
        assertEquals(2, said.size(), said.toString());
        assertTrue(said.get(0).contains("no fair queue, no fence"));
    }

    @Test
    void whatItCannotDoItSaysAndAReleaseMayCountFromNow() throws Exception {
        RedisLockClient mine = behind(lenient);
        RedisLock lock = mine.lock("mine");
        lock.lock();
        RedisHold hold = mine.lock("hold").acquire();
        for (Other.Action use : List.<Other.Action>of(
                () -> mine.semaphore("a", 2).availablePermits(),
                () -> lock.exec("SET", "b", 1),
                () -> hold.release(MINUTE))) {
            assertSays(ModuleMissingException.class, "not available in the fallback", use);
        }
        assertFalse(server.isLocked("hold") || hold.isHeld(), "it is given back all the same");
        mine.lock("a").tryAcquire().releaseIn(MINUTE);
        assertItLastsFor(MINUTE);
    }

    @Test
    void atAServerWithTheModuleTheOptionChangesNothing() {
        TestServer full = closing(TestServer.start());
        assertTrue(closing(Way.JEDIS.open(full.url(), lenient)).take("a").fence() > 0);
        assertEquals(List.of(), said);
    }
}
