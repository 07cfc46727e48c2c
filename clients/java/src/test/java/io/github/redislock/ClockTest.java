package io.github.redislock;

import static org.junit.jupiter.api.Assertions.*;

import io.github.redislock.testing.Eventually;
import io.github.redislock.testing.TestServer;

import org.junit.jupiter.api.*;
import org.junit.jupiter.params.*;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;

/** The lease by the client's clock, and what the server says to it. */
@ParameterizedClass
@EnumSource(names = {"JEDIS", "LETTUCE_FUTURES"})
class ClockTest extends ServerTest {
    private static final String TRY_AGAIN = "-TRYAGAIN not enough servers have confirmed it\r\n";

    /** Short ones would be late on a busy machine. */
    private final LockOptions longer = options.withTtl(Duration.ofSeconds(6));

    @Parameter
    Way way;

    private Way.Opened behind;

    @BeforeEach
    void connectByProxy() {
        behind = by(way, longer);
    }

    private RedisHold take(String name, long leaseMs) {
        return behind.take(Way.Kind.LOCK, List.of(name), 0, leaseMs);
    }

    @Test
    void aLeaseThatIsOverStaysLostWhateverAnAnswerSays() {
        RedisHold checked = take("b", 1_200);
        RedisHold hold = behind.take("a");
        assertTrue(hold.renew(Duration.ofMillis(1_200)));
        server.ask("LOCK.RENEW", "a", server.holders("a").get(0), 60_000);
        proxy.replyDelayMs = 1_500;
        assertFalse(hold.renew(MINUTE) || checked.check());
        proxy.replyDelayMs = 0;
        assertFalse(hold.isHeld());
        awaitFree("a");
    }

    @Test
    void aReleaseThatIsSentAgainCountsAsDoneOnlyWhileTheLeaseLasts() {
        RedisHold hold = take("a", 2_000);
        long endNanos = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(2_000);
        proxy.silent = true;
        Future<Void> released = other.starts(() -> hold.release());
        Eventually.isTrue("its answer is lost", () -> server.calls("lock.release") > 0);
        Eventually.isTrue("the lease is over", () -> System.nanoTime() - endNanos > 0);
        proxy.silent = false;
        proxy.cut();
        assertThrows(IllegalMonitorStateException.class, () -> Other.result(released));
    }

    @Test
    void aRenewalThatCameThroughUnseenLeavesNothing() throws Exception {
        RedisHold renewed = behind.take("a");
        RedisHold leased = take("b", 4_000);
        proxy.silent = true;
        for (String name : List.of("a", "b")) {
            server.ask("LOCK.RENEW", name, server.holders(name).get(0), 3_600_000);
        }
        awaitLost();
        awaitLost();
        proxy.silent = false;
        assertFalse(renewed.isHeld() || leased.isHeld());
        awaitFree("a");
        awaitFree("b");
    }

    @Test
    void aJobThatOutlivesItsLeaseKeepsItsLeastTime() {
        Duration least = Duration.ofSeconds(30);
        behind.runOnce("a", least, least, hold -> {
            hold.renew(Duration.ofMillis(1_500)); // What is left of it, by the client's clock.
            server.ask("LOCK.RENEW", "a", server.holders("a").get(0), 60_000);
            Eventually.isTrue("it is lost", () -> !hold.isHeld());
        });
        Eventually.isTrue("it has come", () -> server.calls("lock.release") > 0);
        assertItLastsFor(least);
    }

    /** It comes at a third of the ttl, by another connection of Jedis, and would set it anew. */
    @Test
    void aRenewalThatIsUnderWayDoesNotProlongALeastTime() {
        RedisHold hold = behind.take("a");
        proxy.heldBack = "LOCK.RENEW";
        Eventually.isTrue("it is under way", () -> proxy.holdsBack);
        Future<Void> released = other.starts(() -> hold.release(Duration.ofSeconds(4)));
        Eventually.pause(300); // For a release that does not wait.
        proxy.heldBack = null;
        Other.result(released);
        Eventually.isTrue("it has come", () -> server.calls("lock.renew") > 0);
        long leftMs = server.leftMs("a");
        assertTrue(leftMs <= 2_000, "and not for the ttl of 6 s: " + leftMs);
    }

    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void aJobIsToldOfALossThatOnlyItsReleaseSees(boolean ended) throws Exception {
        assertTrue(behind.runOnce("a", MINUTE, Duration.ZERO, hold -> {
            server.ask("DEL", "a");
            assertTrue(!ended || !hold.check(), "its loss is told before the release");
        }));
        assertEquals(Keeper.GONE, awaitLost().reason());
        assertNull(lost.poll());
    }

    /** The last hundredth belongs to a job that is at work still. */
    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void aLeaseThatNobodyRenewsEndsAtTheServerNoSoonerForItsClient(boolean byHand)
            throws Exception {
        long leaseMs = 4_000;
        long startNanos = System.nanoTime();
        RedisHold hold = take("a", leaseMs);
        if (byHand) {
            Eventually.pause(500);
            startNanos = System.nanoTime();
            assertTrue(hold.renew(Duration.ofMillis(leaseMs)));
        }
        assertTrue(locks.lock("a").tryLock(20, TimeUnit.SECONDS));
        long lastedMs = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - startNanos);
        assertTrue(lastedMs >= leaseMs - 1, "it lasted for " + lastedMs + " ms");
        assertEquals(Keeper.ENDED, awaitLost().reason());
        assertTrue(server.calls("lock.release") > 0, "which would have ended a renewal");
    }

    @ParameterizedTest
    @ValueSource(strings = {":0\r\n", TRY_AGAIN})
    void aLateGrantThatIsLostIsAskedForAgain(String answer) throws Exception {
        RedisHold before = locks.lock("a").tryAcquire(0, 60, TimeUnit.SECONDS);
        Future<RedisHold> late = awaitWaiter(behind, -1);
        Eventually.pause(TTL_MS / 4); // Above a tenth of the ttl.
        proxy.answerRenewals(answer, 1);
        long asked = server.calls("lock.acquire");
        before.release();
        Other.result(late).release();
        assertEquals(0, proxy.toAnswer.get());
        assertTrue(server.calls("lock.acquire") > asked);
    }

    @Test
    void tryAgainLosesNothingBeforeTheLeaseIsOver() throws Exception {
        RedisHold hold = behind.take("a");
        proxy.answerRenewals(TRY_AGAIN, 3);
        Eventually.isTrue("a renewal is answered", () -> server.calls("lock.renew") > 0);
        assertEquals(0, proxy.toAnswer.get());
        assertTrue(hold.isHeld());
        assertNull(lost.poll());
        proxy.answerRenewals(TRY_AGAIN, Integer.MAX_VALUE);
        assertEquals(Keeper.NOT_RENEWED, awaitLost().reason());
    }

    @Test
    void aRenewalByHandAsksAgainUntilTheLeaseEnds() {
        RedisHold hold = behind.take("a");
        proxy.answerRenewals(TRY_AGAIN, 2);
        assertTrue(hold.renew(Duration.ofSeconds(5)));
        assertEquals(0, proxy.toAnswer.get());
        proxy.answerRenewals(TRY_AGAIN, Integer.MAX_VALUE);
        long startNanos = System.nanoTime();
        assertFalse(hold.renew(Duration.ofSeconds(5)));
        // Longer than a server that is out of reach is asked.
        assertTrue(System.nanoTime() - startNanos > TimeUnit.MILLISECONDS.toNanos(4_500));
        assertFalse(hold.isHeld());
    }

    @Test
    void aRenewalAboveMaxTtlSaysSo() {
        TestServer bounded = closing(TestServer.start("max-ttl", "6000"));
        Way.Opened client = closing(way.open(bounded.url(), longer));
        Duration above = Duration.ofMillis(6_001);
        RedisHold hold = client.take("a");
        RedisHold kept = client.take("b");
        assertSays(IllegalArgumentException.class, "lock.max-ttl", () -> hold.renew(above));
        String least = assertThrows(IllegalArgumentException.class, () -> kept.release(above))
                .getMessage();
        assertTrue(least.matches("atLeast .*lock.max-ttl"), least);
        assertFalse(bounded.isLocked("b"), "it is given back all the same");
        bounded.ask("CONFIG", "RESETSTAT");
        Eventually.isTrue("it is renewed as before", () -> bounded.calls("lock.renew") > 1);
        assertTrue(hold.isHeld());
    }

    /** As after the last redirection that a way follows, while the slots are on the move. */
    @ParameterizedTest
    @ValueSource(strings = {"-MOVED 1 127.0.0.1:1\r\n", "-ASK 1 127.0.0.1:1\r\n"})
    void aRedirectionThatReachesAWaiterEndsNoWait(String answer) {
        proxy.answer("LOCK.ACQUIRE", answer, 2);
        behind.awaits("a", -1).release();
        assertEquals(0, proxy.toAnswer.get());
    }
}
