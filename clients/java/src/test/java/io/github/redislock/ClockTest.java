package io.github.redislock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.lettuce.core.RedisClient;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

import java.io.IOException;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** The lease by the client's clock, and what the server says to it. */
class ClockTest extends ServerTest {
    private static final String TRY_AGAIN = "-TRYAGAIN not enough servers have confirmed it\r\n";

    /** Short ones would be late on a busy machine. */
    private final LockOptions longer = options.withTtl(Duration.ofSeconds(2));

    private FaultyProxy proxy;
    private RedisLockClient behind;
    private RedisClient lettuce;
    private LettuceLockClient async;

    @BeforeEach
    void connectByProxy() throws IOException {
        proxy = new FaultyProxy(server.port());
        behind = RedisLockClient.connect(proxy.url(), longer);
        lettuce = RedisClient.create(proxy.url());
        async = LettuceLockClient.connect(lettuce, longer);
        server.ask("CONFIG", "RESETSTAT");
    }

    @AfterEach
    void closeProxy() throws IOException {
        behind.close();
        async.close();
        lettuce.shutdown(Duration.ZERO, Duration.ofSeconds(2));
        proxy.close();
    }

    private long calls(String command) {
        Matcher calls = Pattern.compile("(?i)cmdstat_" + Pattern.quote(command) + ":calls=(\\d+)")
                .matcher(server.info("commandstats"));
        return calls.find() ? Long.parseLong(calls.group(1)) : 0;
    }

    @Test
    void aTtlCountsFromTheSendingLessTheDrift() {
        Lease lease = new Lease();
        lease.begin(System.nanoTime(), 200_000);
        long beforeNanos = System.nanoTime();
        Lease.Sent sent = lease.sends(100_000);
        long endNanos = beforeNanos + TimeUnit.MILLISECONDS.toNanos(98_998);
        long earlyNanos = System.nanoTime() + lease.leftNanos() - endNanos;
        assertTrue(earlyNanos >= 0 && earlyNanos < 50_000_000, "it is shorter, answer or not");
        assertTrue(lease.answered(sent));
        lease.answered(lease.sends(200_000));
        assertTrue(lease.leftMs() > 199_900 && lease.leftMs() <= 200_000);
    }

    @Test
    void aHoldCountsFromTheSending() {
        RedisHold hold = behind.lock("a").tryAcquire();
        AsyncHold other = Other.result(async.lock("b").lock());
        proxy.replyDelayMs = 300;
        assertTrue(hold.renew(Duration.ofSeconds(100)));
        long leftMs = hold.remaining().toMillis();
        assertTrue(leftMs <= 98_698 && leftMs > 97_000, leftMs + " ms");
        assertTrue(Other.result(other.renew(Duration.ofSeconds(1))));
        Eventually.pause(690);
        assertFalse(other.isHeld());
    }

    @Test
    void aLeaseThatIsOverStaysLost() {
        RedisHold hold = behind.lock("a").tryAcquire();
        AsyncHold other = Other.result(async.lock("b").lock());
        assertTrue(hold.renew(Duration.ofMillis(400)));
        assertTrue(Other.result(other.renew(Duration.ofMillis(400))));
        server.ask("LOCK.RENEW", "a", hold.id(), 60_000);
        server.ask("LOCK.RENEW", "b", server.holders("b").get(0), 60_000);
        proxy.replyDelayMs = 500;
        Future<Boolean> late = other.renew(Duration.ofSeconds(60));
        assertFalse(hold.renew(Duration.ofSeconds(60)));
        assertFalse(Other.result(late));
        proxy.replyDelayMs = 0;
        assertFalse(hold.isHeld() || other.isHeld());
        Eventually.isTrue("nothing is left", () -> !server.redis.exists("a"));
        Eventually.isTrue("nothing is left", () -> !server.redis.exists("b"));
    }

    @Test
    void aGrantThatCameLateIsRenewed() throws Exception {
        List<Callable<RedisHold>> ways = List.of(
                () -> behind.lock("a").acquire(),
                () -> behind.readWriteLock("a").readLock().acquire(),
                () -> behind.semaphore("a", 2).acquire(),
                () -> behind.multiLock(behind.lock("a"), behind.lock("b")).acquire(),
                () -> {
                    AsyncHold hold = Other.result(async.lock("a").lock());
                    assertTrue(Other.result(hold.unlock()));
                    return null;
                });
        for (Callable<RedisHold> way : ways) {
            long keys = way == ways.get(3) ? 2 : 1;
            assertEquals(0, renewalsUntilReleased(way));
            RedisHold before = locks.lock("a").tryAcquire(0, 60, TimeUnit.SECONDS);
            Future<Long> late = other.starts(() -> renewalsUntilReleased(way));
            awaitWaiters("a", 1);
            Eventually.pause(300);
            before.release();
            assertEquals(keys, Other.result(late));
        }
    }

    private long renewalsUntilReleased(Callable<RedisHold> way) throws Exception {
        long before = calls("lock.renew");
        RedisHold hold = way.call();
        long renewals = calls("lock.renew") - before;
        if (hold != null) {
            hold.release();
        }
        return renewals;
    }

    @Test
    void aLateGrantThatIsLostIsAskedForAgain() throws Exception {
        for (String answer : List.of(":0\r\n", TRY_AGAIN)) {
            RedisHold before = locks.lock("a").tryAcquire(0, 60, TimeUnit.SECONDS);
            Future<RedisHold> late = other.starts(() -> behind.lock("a").acquire());
            awaitWaiters("a", 1);
            Eventually.pause(300);
            proxy.answerRenewals(answer, 1);
            long asked = calls("lock.acquire");
            before.release();
            Other.result(late).release();
            assertEquals(0, proxy.renewalsToAnswer.get());
            assertTrue(calls("lock.acquire") > asked);
        }
    }

    @Test
    void tryAgainLosesNothingBeforeTheLeaseIsOver() throws Exception {
        RedisHold hold = behind.lock("a").acquire();
        keepsBy(hold::isHeld);
        proxy.answerRenewals(TRY_AGAIN, Integer.MAX_VALUE);
        assertTrue(awaitLost().reason().contains("no renewal"));
        proxy.answerRenewals(TRY_AGAIN, 0);
        AsyncHold async = Other.result(this.async.lock("b").lock());
        server.ask("CONFIG", "RESETSTAT");
        keepsBy(async::isHeld);
        proxy.answerRenewals(TRY_AGAIN, Integer.MAX_VALUE);
        assertTrue(awaitLost().reason().contains("no renewal"));
    }

    @Test
    void aRenewalByHandAsksAgainUntilTheLeaseEnds() {
        RedisHold hold = behind.lock("a").tryAcquire();
        AsyncHold async = Other.result(this.async.lock("b").lock());
        proxy.answerRenewals(TRY_AGAIN, 2);
        assertTrue(hold.renew(Duration.ofSeconds(5)));
        proxy.answerRenewals(TRY_AGAIN, 2);
        assertTrue(Other.result(async.renew(Duration.ofSeconds(5))));
        assertEquals(0, proxy.renewalsToAnswer.get());
        proxy.answerRenewals(TRY_AGAIN, Integer.MAX_VALUE);
        CompletableFuture<Boolean> late = async.renew(Duration.ofSeconds(5));
        long startNanos = System.nanoTime();
        assertFalse(hold.renew(Duration.ofSeconds(5)));
        assertFalse(Other.result(late));
        // Longer than a server that is out of reach is asked.
        assertTrue(System.nanoTime() - startNanos > TimeUnit.MILLISECONDS.toNanos(4_500));
        assertFalse(hold.isHeld() || async.isHeld());
    }

    private void keepsBy(Callable<Boolean> isHeld) throws Exception {
        proxy.answerRenewals(TRY_AGAIN, 3);
        Eventually.isTrue("a renewal is answered", () -> calls("lock.renew") > 0);
        assertEquals(0, proxy.renewalsToAnswer.get());
        assertTrue(isHeld.call());
        assertNull(lost.poll());
    }

    @Test
    void aLeaseAboveMaxTtlSaysSo() {
        try (TestServer bounded = TestServer.startBounded(2_000);
                RedisLockClient client = RedisLockClient.connect(bounded.url(), longer)) {
            List<Function<RedisLockClient, RedisHold>> ways = List.of(
                    each -> each.lock("a").tryAcquire(),
                    each -> each.readWriteLock("a").readLock().tryAcquire(),
                    each -> each.semaphore("a", 2).tryAcquire(),
                    each -> each.multiLock(each.lock("a")).tryAcquire());
            LockOptions tooLong = longer.withTtl(Duration.ofMillis(2_001));
            try (RedisLockClient other = RedisLockClient.connect(bounded.url(), tooLong)) {
                for (Function<RedisLockClient, RedisHold> way : ways) {
                    saysSo(assertThrows(IllegalArgumentException.class, () -> way.apply(other)));
                }
            }
            try (RedisHold hold = client.lock("a").tryAcquire()) {
                Duration more = Duration.ofMillis(2_001);
                saysSo(assertThrows(IllegalArgumentException.class, () -> hold.renew(more)));
            }
            RedisClient lettuce = RedisClient.create(bounded.url());
            try (LettuceLockClient other = LettuceLockClient.connect(lettuce, tooLong)) {
                for (AsyncLock lock : List.of(other.lock("a"), other.multiLock(other.lock("a")))) {
                    saysSo(assertThrows(
                            IllegalArgumentException.class, () -> Other.result(lock.lock())));
                }
            } finally {
                lettuce.shutdown(Duration.ZERO, Duration.ofSeconds(2));
            }
        }
    }

    private static void saysSo(IllegalArgumentException failed) {
        assertTrue(
                failed.getMessage().matches(".*lease.*ttl.*lockAtMostFor.*ERR .* lock.max-ttl"),
                failed.getMessage());
    }
}
