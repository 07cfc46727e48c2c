package io.github.redislock;

import static org.junit.jupiter.api.Assertions.*;

import io.github.redislock.testing.Eventually;
import io.github.redislock.testing.TestServer;

import io.lettuce.core.*;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.codec.RedisCodec;
import io.lettuce.core.protocol.ProtocolVersion;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;

import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import java.util.stream.IntStream;

/** Waiting without a thread and without a connection of its own: by messages, over Lettuce. */
class LettuceTest extends ServerTest {
    /** So long that a place that is gone was given up, and that nobody asks again by the clock. */
    private final LockOptions endless = patient.withGrace(HOUR).withSlice(HOUR);

    private LettuceLockClient far(LockOptions options) {
        return by(Way.LETTUCE_FUTURES, options).futures();
    }

    private static AsyncHold take(AsyncLock lock) {
        return Other.result(lock.lock());
    }

    /** Waits for it, and gives it back. */
    private static void assertIsHad(CompletableFuture<AsyncHold> waiting) {
        assertTrue(Other.result(Other.result(waiting).unlock()));
    }

    private CompletableFuture<AsyncHold> awaits(AsyncLock lock) {
        CompletableFuture<AsyncHold> waiting = lock.lock();
        awaitWaiters("a", 1);
        return waiting;
    }

    @Test
    void tenThousandWaitersShareTwoConnections() {
        int waiters = 500;
        // Not by the proxy, which is slow. On a busy machine an answer may be late all the same.
        LockOptions calm = endless.withReconnect(MINUTE);
        LettuceLockClient shared = closing(Way.LETTUCE_FUTURES.open(server.url(), calm)).futures();
        int before = server.connections();
        List<AsyncLock> all =
                IntStream.range(0, 20).mapToObj(number -> shared.lock("a" + number)).toList();
        List<AsyncHold> first = all.stream().map(LettuceTest::take).toList();
        List<CompletableFuture<Boolean>> ends = all.stream()
                .flatMap(lock -> IntStream.range(0, waiters)
                        .mapToObj(number -> lock.lock().thenCompose(AsyncHold::unlock)))
                .toList();
        first.forEach(hold -> awaitWaiters(hold.name(), waiters));
        Eventually.isTrue("there are no more", () -> server.connections() <= before);
        first.forEach(hold -> assertTrue(Other.result(hold.unlock())));
        ends.forEach(end -> assertTrue(Other.result(end)));
    }

    /** After a planned failover behind one address: the old server lives on, and closes nothing. */
    @Test
    void theSubscriptionGoesWhereTheRequestsGo() {
        server.ask("CONFIG", "SET", "repl-diskless-sync-delay", 0);
        TestServer next = closing(TestServer.start());
        AsyncLock lock = far(endless).lock("a");
        next.ask("REPLICAOF", "127.0.0.1", server.port());
        Eventually.isTrue(
                "it is replicated", () -> next.info("replication").contains("link_status:up"));
        server.ask("FAILOVER");
        next.awaitPromotion();
        proxy.serverPort = next.port();
        proxy.cutUnsubscribed();
        AsyncHold held = take(lock);
        CompletableFuture<AsyncHold> waiting = lock.lock();
        Eventually.isTrue("it waits there", () -> next.waiting("a") == 1);
        assertTrue(Other.result(held.unlock()));
        assertIsHad(waiting);
    }

    @ParameterizedTest
    @EnumSource
    void aSubscriptionThatLivesIsKept(ProtocolVersion protocol) {
        RedisClient lettuce = RedisClient.create(proxy.url());
        closing(Way.ending(lettuce));
        lettuce.setOptions(ClientOptions.builder().protocolVersion(protocol).build());
        LockOptions brief = options.withSlice(HOUR).withGrace(Duration.ofSeconds(1));
        AsyncLock lock = closing(LettuceLockClient.connect(lettuce, brief)).lock("a");
        List<String> before = server.subscriptions();
        RedisHold held = locks.lock("a").tryAcquire();
        CompletableFuture<AsyncHold> waiting = lock.lock();
        awaitCalls("ping", 3);
        assertEquals(before, server.subscriptions());
        held.release();
        assertIsHad(waiting);
    }

    @Test
    void aWaiterOutlivesASilentServerForItsTimeToWait() throws Exception {
        RedisHold held = locks.lock("a").tryAcquire(0, 60, TimeUnit.SECONDS);
        AsyncLock lock = far(options.withSlice(Duration.ofMillis(200))
                        .withReconnect(Duration.ofMillis(100)))
                .lock("a");
        CompletableFuture<AsyncHold> endless = awaits(lock);
        CompletableFuture<AsyncHold> timed = lock.tryLock(MINUTE).thenApply(Optional::orElseThrow);
        awaitWaiters("a", 2);
        server.pause();
        Eventually.pause(2_000);
        server.resume();
        assertFalse(endless.isDone() || timed.isDone());
        held.release();
        assertIsHad(endless);
        assertIsHad(timed);
    }

    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void aWaiterThatGivesUpLeavesNoPlace(boolean closed) {
        RedisHold held = locks.lock("a").tryAcquire();
        LettuceLockClient far = far(endless);
        AsyncLock both = far.multiLock(far.lock("a"), far.lock("b"));
        List<CompletableFuture<AsyncHold>> waiting =
                List.of(far.lock("a").lock(), far.semaphore("a", 1).lock(), both.lock());
        awaitWaiters("a", 3);
        awaitWaiters("b", 1);
        if (closed) {
            far.close();
            assertEquals(0, server.waiting("a") + server.waiting("b"));
            waiting.forEach(each ->
                    assertThrows(IllegalStateException.class, () -> Other.result(each)));
        } else {
            waiting.forEach(each -> each.cancel(false));
            awaitWaiters("a", 0);
            awaitWaiters("b", 0);
        }
        held.release();
        assertFalse(server.isLocked("a") || server.isLocked("b"), "nothing was left to it");
    }

    @Test
    void aWaiterThatIsCancelledAtItsGrantLeavesNoHold() {
        AsyncLock lock = far(endless).lock("a");
        for (int turn = 0; turn < 50; turn++) {
            AsyncHold first = take(lock);
            CompletableFuture<AsyncHold> waiting = awaits(lock);
            CompletableFuture<Boolean> released = first.unlock();
            boolean cancelled = waiting.cancel(false);
            Other.result(released);
            if (!cancelled) {
                assertIsHad(waiting);
            }
            awaitFree("a");
        }
    }

    @Test
    void aWaiterWhoseConnectionComesAfterTheCloseDoesNotAsk() {
        locks.lock("a").lock();
        Semaphore gate = new Semaphore(1);
        RedisClient slow = new RedisClient(null, RedisURI.create(server.url())) {
            @Override
            public <K, V> StatefulRedisConnection<K, V> connect(RedisCodec<K, V> codec) {
                gate.acquireUninterruptibly();
                gate.release();
                return super.connect(codec);
            }
        };
        closing(Way.ending(slow));
        RedisLockClient mine = LettuceLocks.over(slow, endless);
        gate.acquireUninterruptibly();
        Future<Void> waiting = other.starts(() -> mine.lock("a").lock());
        Eventually.isTrue("it connects", gate::hasQueuedThreads);
        mine.close();
        gate.release();
        assertThrows(IllegalStateException.class, () -> Other.result(waiting));
        assertEquals(0, server.waiting("a"));
    }

    @Test
    void aJobsErrorComesBeforeThatOfTheUnlock() {
        Error failure = new StackOverflowError("the job");
        proxy.answer("LOCK.RELEASE", "-ERR not today\r\n", 1);
        CompletableFuture<Boolean> ran =
                far(options).runOnce("a", MINUTE, Duration.ZERO, hold -> {
                    throw failure;
                });
        assertSame(
                failure,
                assertThrows(AssertionError.class, () -> Other.result(ran)).getCause());
        assertEquals("ERR not today", failure.getSuppressed()[0].getMessage());
    }
}
