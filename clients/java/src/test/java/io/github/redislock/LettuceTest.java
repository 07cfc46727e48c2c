package io.github.redislock;

import static org.junit.jupiter.api.Assertions.*;

import io.github.redislock.testing.Eventually;
import io.github.redislock.testing.TestServer;

import io.lettuce.core.*;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.codec.RedisCodec;
import io.lettuce.core.protocol.ProtocolVersion;

import org.junit.jupiter.api.*;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;

import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;

/** Waiting without a thread and without a connection of its own: by messages, over Lettuce. */
@Timeout(value = 60, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class LettuceTest extends ServerTest {
    /** So long that a place that is gone was given up, and that nobody asks again by the clock. */
    private final LockOptions patient = LockOptions.defaults()
            .withOnLost(lost::add)
            .withGrace(Duration.ofHours(1))
            .withSlice(Duration.ofHours(1));

    private RedisClient lettuce;
    private LettuceLockClient shared;

    @BeforeEach
    void connectLettuce() {
        lettuce = RedisClient.create(server.url());
        shared = LettuceLockClient.connect(lettuce, patient);
    }

    @AfterEach
    void disconnectLettuce() throws Exception {
        shared.close();
        Way.ending(lettuce).close();
    }

    private static <T> T result(CompletableFuture<T> future) {
        return Other.result(future);
    }

    @Test
    void tenThousandWaitersShareTwoConnections() {
        int locksCount = 20;
        int waiters = 500;
        int before = server.connections();
        List<AsyncHold> first = new ArrayList<>();
        List<CompletableFuture<Boolean>> ends = new ArrayList<>();
        for (int number = 0; number < locksCount; number++) {
            AsyncLock lock = shared.lock("a" + number);
            first.add(result(lock.lock()));
            for (int waiter = 0; waiter < waiters; waiter++) {
                ends.add(lock.lock().thenCompose(AsyncHold::unlock));
            }
        }
        for (int number = 0; number < locksCount; number++) {
            awaitWaiters("a" + number, waiters);
        }
        Eventually.isTrue("there are no more", () -> server.connections() <= before);
        first.forEach(hold -> assertTrue(result(hold.unlock())));
        ends.forEach(end -> assertTrue(result(end)));
    }

    @Test
    void aMessageThatIsLostIsMadeUpForAtTheEndOfTheSlice() throws Exception {
        RedisHold held = locks.lock("a").tryAcquire();
        LockOptions sliced = LockOptions.defaults().withSlice(Duration.ofMillis(300));
        try (FaultyProxy proxy = new FaultyProxy(server.port());
                Way.Opened far = Way.LETTUCE_FUTURES.open(proxy.url(), sliced)) {
            CompletableFuture<AsyncHold> waiting = far.futures.lock("a").lock();
            awaitWaiters("a", 1);
            proxy.deaf = true;
            held.release();
            assertTrue(result(result(waiting).unlock()));
        }
    }

    /** After a planned failover behind one address: the old server lives on, and closes nothing. */
    @Test
    void theSubscriptionGoesWhereTheRequestsGo() throws Exception {
        server.ask("CONFIG", "SET", "repl-diskless-sync-delay", 0);
        try (TestServer next = TestServer.start();
                FaultyProxy proxy = new FaultyProxy(server.port());
                Way.Opened far = Way.LETTUCE_FUTURES.open(proxy.url(), patient)) {
            next.ask("REPLICAOF", "127.0.0.1", server.port());
            Eventually.isTrue(
                    "it is replicated", () -> server.info("replication").contains("state=online"));
            server.ask("FAILOVER");
            Eventually.isTrue(
                    "the other is the primary",
                    () -> next.info("replication").contains("role:master"));
            proxy.serverPort = next.port();
            proxy.cutUnsubscribed();
            AsyncHold held = result(far.futures.lock("a").lock());
            CompletableFuture<AsyncHold> waiting = far.futures.lock("a").lock();
            Eventually.isTrue("it waits there", () -> next.waiting("a") == 1);
            assertTrue(result(held.unlock()));
            assertTrue(result(result(waiting).unlock()));
        } finally {
            server.ask("REPLICAOF", "NO", "ONE");
        }
    }

    /** As when a firewall forgets an idle connection. */
    @Test
    void aSubscriptionThatIsGoneUnseenIsMadeAnewAndTheTurnIsKept() throws Exception {
        LockOptions brief = patient.withTtl(Duration.ofSeconds(3)).withGrace(Duration.ofSeconds(8));
        try (FaultyProxy proxy = new FaultyProxy(server.port());
                Way.Opened far = Way.LETTUCE_FUTURES.open(proxy.url(), brief)) {
            RedisHold held = locks.lock("a").tryAcquire();
            CompletableFuture<AsyncHold> waiting = far.futures.lock("a").lock();
            awaitWaiters("a", 1);
            proxy.forgetSubscribed();
            Eventually.isTrue(
                    "only the other one is left", () -> server.subscriptions().size() == 1);
            Future<RedisHold> behind = other.starts(() -> locks.lock("a").acquire());
            awaitWaiters("a", 2);
            held.release();
            AsyncHold hold = result(waiting);
            assertFalse(behind.isDone());
            assertTrue(result(hold.unlock()));
            Other.result(behind).release();
        }
    }

    @ParameterizedTest
    @EnumSource
    void aSubscriptionThatLivesIsKept(ProtocolVersion protocol) {
        LockOptions brief = patient.withTtl(Duration.ofSeconds(3)).withGrace(Duration.ofSeconds(1));
        lettuce.setOptions(
                ClientOptions.builder().protocolVersion(protocol).build());
        try (LettuceLockClient asking = LettuceLockClient.connect(lettuce, brief)) {
            List<String> before = server.subscriptions();
            RedisHold held = locks.lock("a").tryAcquire();
            CompletableFuture<AsyncHold> waiting = asking.lock("a").lock();
            server.ask("CONFIG", "RESETSTAT");
            Eventually.isTrue("it is asked again and again", () -> server.calls("ping") > 2);
            assertEquals(before, server.subscriptions());
            held.release();
            assertTrue(result(result(waiting).unlock()));
        }
    }

    @Test
    void aWaiterThatLingersIsBoundToTheNextConnection() {
        RedisHold held = locks.lock("a").tryAcquire();
        try (LettuceLockClient lingers =
                LettuceLockClient.connect(lettuce, patient.withLinger(Duration.ofSeconds(5)))) {
            CompletableFuture<AsyncHold> waiting = lingers.lock("a").lock();
            awaitWaiters("a", 1);
            // All but the subscription.
            server.ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes");
            held.release();
            assertTrue(result(result(waiting).unlock()));
        }
    }

    /** Its renewal for the next connection is under way when the hold is given back. */
    @Test
    void aHoldThatLingersIsNotTakenAgainAfterItsUnlock() throws Exception {
        try (FaultyProxy proxy = new FaultyProxy(server.port());
                Way.Opened far = Way.LETTUCE_FUTURES.open(
                        proxy.url(), patient.withLinger(Duration.ofMinutes(1)))) {
            AsyncHold hold = result(far.futures.lock("a").lock());
            server.ask("CONFIG", "RESETSTAT");
            proxy.replyDelayMs = 300;
            proxy.cut();
            Eventually.isTrue("it is renewed", () -> server.calls("lock.renew") > 0);
            assertTrue(result(hold.unlock()));
            result(far.futures.lock("b").lock()); // By the same connection, so it comes after.
            assertFalse(server.isLocked("a"));
        }
    }

    @Test
    void aWaiterOutlivesASilentServerForItsTimeToWait() throws Exception {
        RedisHold held = locks.lock("a").tryAcquire(0, 60, TimeUnit.SECONDS);
        LockOptions brief =
                options.withSlice(Duration.ofMillis(200)).withReconnect(Duration.ofMillis(100));
        try (LettuceLockClient quick = LettuceLockClient.connect(lettuce, brief)) {
            CompletableFuture<AsyncHold> endless = quick.lock("a").lock();
            CompletableFuture<Optional<AsyncHold>> timed =
                    quick.lock("a").tryLock(Duration.ofMinutes(1));
            awaitWaiters("a", 2);
            server.pause();
            try {
                Eventually.pause(2_000);
            } finally {
                server.resume();
            }
            assertFalse(endless.isDone() || timed.isDone());
            held.release();
            assertTrue(result(result(endless).unlock()));
            assertTrue(result(result(timed).orElseThrow().unlock()));
        }
    }

    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void aWaiterThatGivesUpLeavesNoPlace(boolean closed) {
        RedisHold held = locks.lock("a").tryAcquire();
        AsyncLock both = shared.multiLock(shared.lock("a"), shared.lock("b"));
        List<CompletableFuture<AsyncHold>> waiting =
                List.of(shared.lock("a").lock(), shared.semaphore("a", 1).acquire(), both.lock());
        awaitWaiters("a", 3);
        awaitWaiters("b", 1);
        if (closed) {
            shared.close();
            assertEquals(0, server.waiting("a") + server.waiting("b"));
            waiting.forEach(each -> assertThrows(IllegalStateException.class, () -> result(each)));
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
        for (int turn = 0; turn < 50; turn++) {
            AsyncHold first = result(shared.lock("a").lock());
            CompletableFuture<AsyncHold> waiting = shared.lock("a").lock();
            awaitWaiters("a", 1);
            CompletableFuture<Boolean> released = first.unlock();
            boolean cancelled = waiting.cancel(false);
            result(released);
            if (!cancelled) {
                result(result(waiting).unlock());
            }
            Eventually.isTrue("it is free", () -> !server.isLocked("a"));
        }
    }

    @Test
    void aWaiterWhoseConnectionComesAfterTheCloseDoesNotAsk() throws Exception {
        locks.lock("a").lock();
        Gate gate = new Gate();
        RedisClient slow = new RedisClient(null, RedisURI.create(server.url())) {
            @Override
            public <K, V> StatefulRedisConnection<K, V> connect(RedisCodec<K, V> codec) {
                gate.pass();
                return super.connect(codec);
            }
        };
        try (Way.Opened closing =
                new Way.Opened(LettuceLocks.over(slow, patient), Way.ending(slow))) {
            gate.shut();
            Future<Void> waiting = other.starts(() -> closing.locks.lock("a").lock());
            gate.awaitSomebody();
            closing.locks.close();
            gate.open();
            assertThrows(RedisException.class, () -> Other.result(waiting));
            assertEquals(0, server.waiting("a"));
        }
    }

    @Test
    void aJobsErrorComesBeforeThatOfTheUnlock() throws Exception {
        Error failure = new StackOverflowError("the job");
        try (FaultyProxy proxy = new FaultyProxy(server.port());
                Way.Opened far = Way.LETTUCE_FUTURES.open(proxy.url(), options)) {
            proxy.answer("LOCK.RELEASE", "-ERR not today\r\n", 1);
            CompletableFuture<Boolean> ran =
                    far.futures.runOnce("a", Duration.ofMinutes(1), Duration.ZERO, hold -> {
                        throw failure;
                    });
            assertSame(
                    failure,
                    assertThrows(AssertionError.class, () -> result(ran)).getCause());
            assertEquals("ERR not today", failure.getSuppressed()[0].getMessage());
        }
    }

    @Test
    void aLossIsToldWithItsReason() throws Exception {
        try (LettuceLockClient quick = LettuceLockClient.connect(lettuce, options)) {
            AsyncHold hold = result(quick.lock("a").lock());
            assertFalse(hold.lost().isDone());
            server.ask("DEL", "a");
            assertEquals(hold.fence(), awaitLost().fence());
            assertTrue(result(hold.lost()).contains("the server says"));
            AsyncHold silent = result(quick.lock("a").lock());
            server.pause();
            try {
                LostLock told = awaitLost();
                assertTrue(told.reason().contains("no renewal"));
                assertNull(told.owner());
                assertFalse(silent.isHeld());
            } finally {
                server.resume();
            }
        }
    }
}
