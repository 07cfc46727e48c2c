package io.github.redislock;

import static org.junit.jupiter.api.Assertions.*;

import io.github.redislock.testing.Eventually;
import io.github.redislock.testing.TestServer;

import org.junit.jupiter.api.*;
import org.junit.jupiter.params.*;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;

import java.io.IOException;
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

    private FaultyProxy proxy;
    private Way.Opened behind;

    @BeforeEach
    void connectByProxy() throws IOException {
        proxy = new FaultyProxy(server.port());
        behind = way.open(proxy.url(), longer);
        server.ask("CONFIG", "RESETSTAT");
    }

    @AfterEach
    void closeProxy() throws IOException {
        behind.close();
        proxy.close();
    }

    @Test
    void aLeaseThatIsOverStaysLost() {
        Held hold = behind.take("a");
        assertTrue(hold.renew(Duration.ofMillis(1_200)));
        server.ask("LOCK.RENEW", "a", server.holders("a").get(0), 60_000);
        proxy.replyDelayMs = 1_500;
        assertFalse(hold.renew(Duration.ofSeconds(60)));
        proxy.replyDelayMs = 0;
        assertFalse(hold.isHeld());
        Eventually.isTrue("nothing is left", () -> !server.isLocked("a"));
    }

    @Test
    void anAnswerAfterTheLeaseDoesNotSayThatItIsHeld() {
        Held hold = behind.take(Way.Kind.LOCK, List.of("a"), 0, 1_200);
        proxy.replyDelayMs = 1_500;
        assertFalse(hold.check());
    }

    @Test
    void aReleaseThatIsSentAgainCountsAsDoneOnlyWhileTheLeaseLasts() throws Exception {
        Held hold = behind.take(Way.Kind.LOCK, List.of("a"), 0, 2_000);
        long endNanos = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(2_000);
        proxy.silent = true;
        Future<Void> released = other.starts(hold::release);
        Eventually.isTrue("its answer is lost", () -> proxy.lostReplies.get() > 0);
        Eventually.isTrue("the lease is over", () -> System.nanoTime() - endNanos > 0);
        proxy.silent = false;
        proxy.cut();
        assertThrows(IllegalMonitorStateException.class, () -> Other.result(released));
    }

    @Test
    void aRenewalThatCameThroughUnseenLeavesNothing() throws Exception {
        Held renewed = behind.take("a");
        Held leased = behind.take(Way.Kind.LOCK, List.of("b"), 0, 4_000);
        proxy.silent = true;
        for (String name : List.of("a", "b")) {
            server.ask("LOCK.RENEW", name, server.holders(name).get(0), 3_600_000);
        }
        awaitLost();
        awaitLost();
        proxy.silent = false;
        assertFalse(renewed.isHeld() || leased.isHeld());
        Eventually.isTrue("nothing is left", () -> !server.isLocked("a") && !server.isLocked("b"));
    }

    @Test
    void aJobThatOutlivesItsLeaseKeepsItsLeastTime() throws Exception {
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
        Held hold = behind.take("a");
        proxy.heldBack = "LOCK.RENEW";
        Eventually.isTrue("it is under way", () -> proxy.holdsBack);
        Future<Void> released = other.starts(() -> hold.releases().accept(Duration.ofSeconds(4)));
        Eventually.pause(300); // For a release that does not wait.
        proxy.heldBack = null;
        Other.result(released);
        Eventually.isTrue("it has come", () -> server.calls("lock.renew") > 0);
        long leftMs = server.leftMs("a");
        assertTrue(leftMs <= 2_000, "and not for the ttl of 6 s: " + leftMs);
    }

    @Test
    void aJobIsToldOfALossThatOnlyItsReleaseSees() throws Exception {
        for (boolean ended : new boolean[] {false, true}) {
            Duration most = Duration.ofSeconds(30);
            assertTrue(behind.runOnce("a", most, Duration.ZERO, hold -> {
                server.ask("DEL", "a");
                assertTrue(!ended || !hold.check(), "its loss is told before the release");
            }));
            assertEquals(Keeper.GONE, awaitLost().reason());
        }
        assertNull(lost.poll());
    }

    /** The last hundredth belongs to a job that is at work still. */
    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void aLeaseThatNobodyRenewsEndsAtTheServerNoSoonerForItsClient(boolean byHand)
            throws Exception {
        long leaseMs = 4_000;
        long startNanos = System.nanoTime();
        Held hold = behind.take(Way.Kind.LOCK, List.of("a"), 0, leaseMs);
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

    @Test
    void aLateGrantThatIsLostIsAskedForAgain() throws Exception {
        for (String answer : List.of(":0\r\n", TRY_AGAIN)) {
            RedisHold before = locks.lock("a").tryAcquire(0, 60, TimeUnit.SECONDS);
            Future<Held> late =
                    other.starts(() -> behind.take(Way.Kind.LOCK, List.of("a"), 20_000, -1));
            awaitWaiters("a", 1);
            Eventually.pause(TTL_MS / 4); // Above a tenth of the ttl.
            proxy.answerRenewals(answer, 1);
            long asked = server.calls("lock.acquire");
            before.release();
            Other.result(late).release();
            assertEquals(0, proxy.toAnswer.get());
            assertTrue(server.calls("lock.acquire") > asked);
        }
    }

    @Test
    void tryAgainLosesNothingBeforeTheLeaseIsOver() throws Exception {
        Held hold = behind.take("a");
        proxy.answerRenewals(TRY_AGAIN, 3);
        Eventually.isTrue("a renewal is answered", () -> server.calls("lock.renew") > 0);
        assertEquals(0, proxy.toAnswer.get());
        assertTrue(hold.isHeld());
        assertNull(lost.poll());
        proxy.answerRenewals(TRY_AGAIN, Integer.MAX_VALUE);
        assertTrue(awaitLost().reason().contains("no renewal"));
    }

    @Test
    void aRenewalByHandAsksAgainUntilTheLeaseEnds() {
        Held hold = behind.take("a");
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
        try (TestServer bounded = TestServer.start(TestServer.VERSION, "max-ttl", "6000");
                Way.Opened client = way.open(bounded.url(), longer)) {
            Held hold = client.take("a");
            IllegalArgumentException refused = assertThrows(
                    IllegalArgumentException.class, () -> hold.renew(Duration.ofMillis(6_001)));
            assertTrue(refused.getMessage().contains("lock.max-ttl"), refused.getMessage());
            IllegalArgumentException least = assertThrows(
                    IllegalArgumentException.class,
                    () -> client.take("b").releases().accept(Duration.ofMillis(6_001)));
            assertTrue(least.getMessage().matches("atLeast .*lock.max-ttl"), least.getMessage());
            assertFalse(bounded.isLocked("b"), "it is given back all the same");
            bounded.ask("CONFIG", "RESETSTAT");
            Eventually.isTrue(
                    "it is renewed as before", () -> bounded.calls("lock.renew") > 1);
            assertTrue(hold.isHeld());
        }
    }

    /** As after the last redirection that a way follows, while the slots are on the move. */
    @Test
    void aRedirectionThatReachesAWaiterEndsNoWait() {
        for (String answer : List.of("-MOVED 1 127.0.0.1:1\r\n", "-ASK 1 127.0.0.1:1\r\n")) {
            proxy.answer("LOCK.ACQUIRE", answer, 2);
            Held hold = behind.take(Way.Kind.LOCK, List.of("a"), 20_000, -1);
            assertEquals(0, proxy.toAnswer.get());
            hold.release();
        }
    }
}
