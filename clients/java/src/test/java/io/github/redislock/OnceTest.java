package io.github.redislock;

import static org.junit.jupiter.api.Assertions.*;

import io.github.redislock.testing.TestServer;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Future;
import java.util.stream.IntStream;

/** What clients/vectors/once.txt does not say: bytes, crowds, ends of makers, errors. */
class OnceTest extends ServerTest {
    private static final String LOCK = "{k}:once";

    private final Once<String> text = Once.text().withPatience(HOUR);

    private static String fails() {
        throw new IllegalStateException("the maker");
    }

    /** And a waiter gets any, also the word of a server that has a place for a request. */
    @ParameterizedTest
    @EnumSource
    void anyBytesComeBackAsTheyWere(Way way) throws Exception {
        byte[] all = new byte[256];
        IntStream.range(0, all.length).forEach(each -> all[each] = (byte) each);
        Way.Opened opened = by(way, patient);
        assertArrayEquals(all, opened.once("k", Once.bytes(), () -> all));
        assertArrayEquals(all, opened.once("k", Once.bytes(), () -> new byte[0]));
        server.ask("DEL", "k");
        server.ask("LOCK.ACQUIRE", LOCK, "maker", 60_000);
        Future<String> waiting = other.starts(() -> opened.once("k", text, OnceTest::fails));
        awaitWaiters(LOCK, 1);
        server.ask("LOCK.EXEC", LOCK, "maker", "SET", "k", "QUEUED", "PX", 60_000);
        assertEquals("QUEUED", Other.result(waiting));
    }

    @ParameterizedTest
    @EnumSource(names = {"JEDIS", "LETTUCE_FUTURES"})
    void anInterruptOrACancelGivesThePlaceUp(Way way) {
        server.ask("LOCK.ACQUIRE", LOCK, "maker", 600_000);
        Way.Opened opened = by(way, patient);
        Future<String> waiting = way == Way.JEDIS
                ? other.starts(() -> opened.once("k", text, OnceTest::fails))
                : opened.futures().once("k", text, CompletableFuture::new);
        awaitWaiters(LOCK, 1);
        if (way == Way.JEDIS) {
            interrupt(waiting);
        } else {
            waiting.cancel(false);
        }
        awaitWaiters(LOCK, 0);
    }

    /** What was cut off may have got the lock, and it must not keep it. */
    @ParameterizedTest
    @EnumSource(names = {"JEDIS", "LETTUCE"})
    void aGrantWhoseAnswerIsLostIsNotForgotten(Way way) throws Exception {
        Way.Opened opened = by(way, patient.withSlice(Duration.ofSeconds(1)));
        opened.once("other", text, () -> "begun");
        proxy.swallowFirstFence();
        assertEquals("\u00e9", opened.once("k", text, () -> "\u00e9"));
        assertTrue(proxy.hasSwallowed());
        assertFalse(server.isLocked(LOCK));
        assertEquals("\u00e9", server.ask("GET", "k"));
    }

    @ParameterizedTest
    @EnumSource(names = {"JEDIS", "JEDIS_UNIFIED", "LETTUCE", "LETTUCE_FUTURES"})
    void whatTheServerRefusesToStoreIsAnErrorAndLeavesNoLock(Way way) {
        server.ask("ACL", "SETUSER", "default", "-set");
        Way.Opened opened = by(way, patient);
        assertSays(Exception.class, "NOPERM", () -> opened.once("k", text, () -> "a"));
        assertFalse(server.isLocked(LOCK));
        assertNull(lost.poll());
    }

    @ParameterizedTest
    @EnumSource(names = {"JEDIS", "LETTUCE_FUTURES"})
    void aServerWithoutTheCommandSaysSo(Way way) {
        Way.Opened older = by(way, patient);
        proxy.answer("LOCK.ONCE", "-ERR unknown command 'LOCK.ONCE', with args beginning with: \r\n", 1);
        assertSays(
                UnsupportedOperationException.class,
                "LOCK.ONCE, which redis-lock has from 0.4.0",
                () -> older.once("k", text, OnceTest::fails));
        TestServer plain = closing(TestServer.withoutModule());
        Way.Opened none = closing(way.open(plain.url(), patient.withFallback(true)));
        for (int turn = 0; turn < 2; turn++) {
            assertThrows(
                    ModuleMissingException.class, () -> none.once("k", text, OnceTest::fails));
            none.take("a").release(); // By the fallback, which is chosen by this only.
        }
    }

    @Test
    void anotherTypeUnderEitherKeyIsAnError() {
        for (String key : new String[] {"k", LOCK}) {
            server.ask("FLUSHALL");
            server.ask("LPUSH", key, "x");
            assertSays(
                    RuntimeException.class,
                    "WRONGTYPE",
                    () -> locks.once("k", text, OnceTest::fails));
        }
    }

    @ParameterizedTest
    @EnumSource(names = {"JEDIS", "LETTUCE", "LETTUCE_FUTURES"})
    void aMakerWithLingerMakes(Way way) throws Exception {
        server.ask("SET", "k", "old", "PX", 20_000);
        Way.Opened opened = by(way, patient.withLinger(Duration.ofSeconds(10)));
        opened.once("other", text, () -> "begun");
        Once<String> early = text.withEarly(Duration.ofSeconds(30));
        assertEquals("new", opened.once("k", early, () -> "new"));
        assertEquals("new", server.ask("GET", "k"));
        assertFalse(server.isLocked(LOCK));
    }

    /** All that is left of a value is early for it, or nothing. */
    @Test
    void xfetchDrawsByHowLongTheMakingTakes() throws Exception {
        assertEquals(Duration.ZERO, Once.xfetch(Duration.ZERO, 1).get());
        double mean = IntStream.range(0, 10_000)
                .mapToLong(each -> Once.xfetch(Duration.ofMillis(1_000), 2).get().toMillis())
                .average()
                .getAsDouble();
        assertTrue(mean > 1_800 && mean < 2_200, "it is " + mean);
        server.ask("SET", "k", "old", "PX", 20_000);
        Once<String> eager = text.withEarly(Once.xfetch(Duration.ofDays(1), 1_000));
        assertEquals("new", locks.once("k", eager, () -> "new"));
        assertEquals("new", locks.once("k", eager, () -> "soon")); // Not in its first half.
    }
}
