package io.github.redislock;

import static org.junit.jupiter.api.Assertions.*;

import io.github.redislock.testing.Eventually;
import io.github.redislock.testing.TestServer;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

import java.time.Duration;
import java.util.concurrent.*;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.IntStream;

/** What clients/vectors/once.txt does not say: bytes, crowds, ends of makers, errors. */
@Timeout(value = 90, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class OnceTest extends ServerTest {
    private static final String LOCK = "{k}:once";

    private final LockOptions patient = LockOptions.defaults().withOnLost(lost::add);
    private final Once<String> text = Once.text().withPatience(Duration.ofSeconds(30));

    private static String fails() {
        throw new IllegalStateException("the maker");
    }

    @ParameterizedTest
    @EnumSource
    void anyBytesComeBackAsTheyWere(Way way) throws Exception {
        byte[] all = new byte[256];
        IntStream.range(0, all.length).forEach(each -> all[each] = (byte) each);
        try (Way.Opened opened = way.open(server.url(), patient)) {
            assertArrayEquals(all, opened.once("k", Once.bytes(), () -> all));
            assertArrayEquals(all, opened.once("k", Once.bytes(), () -> new byte[0]));
        }
    }

    /** The value may be the word of a server that has a place for a request. */
    @ParameterizedTest
    @EnumSource
    void aWaiterGetsAnyValue(Way way) throws Exception {
        server.ask("LOCK.ACQUIRE", LOCK, "maker", 60_000);
        try (Way.Opened opened = way.open(server.url(), patient)) {
            Future<String> waiting = other.starts(() -> opened.once("k", text, OnceTest::fails));
            awaitWaiters(LOCK, 1);
            server.ask("LOCK.EXEC", LOCK, "maker", "SET", "k", "QUEUED", "PX", 60_000);
            assertEquals("QUEUED", Other.result(waiting));
        }
        server.ask("LOCK.RELEASE", LOCK, "maker");
    }

    @Test
    void aMessageOfAValueThatIsLostIsMadeUpForAtTheEndOfTheSlice() throws Exception {
        server.ask("LOCK.ACQUIRE", LOCK, "maker", 60_000);
        try (FaultyProxy proxy = new FaultyProxy(server.port());
                Way.Opened far = Way.LETTUCE_FUTURES.open(
                        proxy.url(), patient.withSlice(Duration.ofMillis(300)))) {
            var waiting = far.futures.once("k", text, () -> new CompletableFuture<>());
            awaitWaiters(LOCK, 1);
            proxy.deaf = true;
            server.ask("LOCK.EXEC", LOCK, "maker", "SET", "k", "a", "PX", 60_000);
            assertEquals("a", Other.result(waiting));
        }
    }

    /** Its process dies, so nothing renews it. */
    @Test
    void aMakerThatDiesIsFollowedByOne() throws Exception {
        CountDownLatch never = new CountDownLatch(1);
        AtomicInteger made = new AtomicInteger();
        LockOptions dying = patient.withTtl(Duration.ofSeconds(2));
        RedisLockClient dead = RedisLockClient.connect(server.url(), dying);
        Future<String> making = other.starts(() -> dead.once("k", text, () -> {
            made.incrementAndGet();
            never.await();
            return "late";
        }));
        Eventually.isTrue("it makes", () -> made.get() == 1);
        dead.close();
        Other.inThreads(2, 1, number -> assertEquals("next", locks.once("k", text, () -> {
            made.incrementAndGet();
            return "next";
        })));
        assertEquals(2, made.get());
        never.countDown();
        assertEquals("late", Other.result(making));
        assertEquals("next", server.ask("GET", "k"));
    }

    @ParameterizedTest
    @EnumSource(names = {"JEDIS", "LETTUCE_FUTURES"})
    void anInterruptOrACancelGivesThePlaceUp(Way way) throws Exception {
        server.ask("LOCK.ACQUIRE", LOCK, "maker", 600_000);
        Once<String> hours = text.withPatience(Duration.ofHours(1));
        try (Way.Opened opened = way.open(server.url(), patient)) {
            if (opened.futures != null) {
                var waiting = opened.futures.once("k", hours, () -> new CompletableFuture<>());
                awaitWaiters(LOCK, 1);
                waiting.cancel(false);
            } else {
                Future<String> waiting =
                        other.starts(() -> opened.once("k", hours, OnceTest::fails));
                awaitWaiters(LOCK, 1);
                interrupt(waiting);
            }
            awaitWaiters(LOCK, 0);
        }
    }

    /** What was cut off may have got the lock, and it must not keep it. */
    @ParameterizedTest
    @EnumSource(names = {"JEDIS", "LETTUCE"})
    void aGrantWhoseAnswerIsLostIsNotForgotten(Way way) throws Exception {
        try (FaultyProxy proxy = new FaultyProxy(server.port());
                Way.Opened opened =
                        way.open(proxy.url(), patient.withSlice(Duration.ofSeconds(1)))) {
            opened.once("other", text, () -> "begun");
            proxy.swallowFirstFence();
            assertEquals("\u00e9", opened.once("k", text, () -> "\u00e9"));
            assertTrue(proxy.hasSwallowed());
            assertFalse(server.isLocked(LOCK));
            assertEquals("\u00e9", server.ask("GET", "k"));
        }
    }

    @ParameterizedTest
    @EnumSource(names = {"JEDIS", "JEDIS_UNIFIED", "LETTUCE", "LETTUCE_FUTURES"})
    void whatTheServerRefusesToStoreIsAnErrorAndLeavesNoLock(Way way) {
        server.ask("ACL", "SETUSER", "default", "-set");
        try (Way.Opened opened = way.open(server.url(), patient)) {
            RuntimeException refused = assertThrows(
                    RuntimeException.class, () -> opened.once("k", text, () -> "a"));
            assertTrue(refused.getMessage().contains("NOPERM"), refused.toString());
            assertFalse(server.isLocked(LOCK));
        } finally {
            server.ask("ACL", "SETUSER", "default", "+set");
        }
        assertNull(lost.poll());
    }

    @ParameterizedTest
    @EnumSource(names = {"JEDIS", "LETTUCE_FUTURES"})
    void aServerWithoutTheCommandSaysSo(Way way) throws Exception {
        String unknown = "-ERR unknown command 'LOCK.ONCE', with args beginning with: \r\n";
        try (FaultyProxy proxy = new FaultyProxy(server.port());
                TestServer plain = TestServer.withoutModule();
                Way.Opened older = way.open(proxy.url(), patient);
                Way.Opened none = way.open(plain.url(), patient.withFallback(true))) {
            proxy.answerStarting("LOCK.ONCE", unknown);
            UnsupportedOperationException lacks = assertThrows(
                    UnsupportedOperationException.class,
                    () -> older.once("k", text, OnceTest::fails));
            assertTrue(lacks.getMessage().contains("LOCK.ONCE, which redis-lock has from 0.4.0"));
            assertThrows(
                    ModuleMissingException.class, () -> none.once("k", text, OnceTest::fails));
            none.take("a").release(); // By the fallback, which is chosen by this only.
            assertThrows(
                    ModuleMissingException.class, () -> none.once("k", text, OnceTest::fails));
        }
    }

    @Test
    void anotherTypeUnderEitherKeyIsAnError() {
        for (String key : new String[] {"k", LOCK}) {
            server.ask("FLUSHALL");
            server.ask("LPUSH", key, "x");
            RuntimeException wrong = assertThrows(
                    RuntimeException.class, () -> locks.once("k", text, OnceTest::fails));
            assertTrue(wrong.getMessage().contains("WRONGTYPE"), wrong.toString());
        }
    }

    @ParameterizedTest
    @EnumSource(names = {"JEDIS", "LETTUCE", "LETTUCE_FUTURES"})
    void aMakerWithLingerMakes(Way way) throws Exception {
        LockOptions lingers = patient.withLinger(Duration.ofSeconds(10));
        server.ask("SET", "k", "old", "PX", 20_000);
        try (Way.Opened opened = way.open(server.url(), lingers)) {
            opened.once("other", text, () -> "begun");
            Once<String> early = text.withEarly(Duration.ofSeconds(30));
            assertEquals("new", opened.once("k", early, () -> "new"));
            assertEquals("new", server.ask("GET", "k"));
            assertFalse(server.isLocked(LOCK));
        }
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
