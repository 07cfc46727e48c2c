package io.github.redislock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.lettuce.core.RedisClient;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.logging.Level;
import java.util.logging.Logger;

/** Waiting without a thread and without a connection of its own: by messages, over Lettuce. */
@Timeout(value = 60, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class LettuceTest extends ServerTest {
    /** So long that a place that is gone was given up, and that nobody asks again by the clock. */
    private final LockOptions patient = LockOptions.defaults()
            .withOnLost(lost::add)
            .withGrace(Duration.ofHours(1))
            .withSlice(Duration.ofHours(1));

    /** Lettuce logs each connection, and each one that the tests cut. Kept, as loggers are not. */
    private static final Logger QUIET = Logger.getLogger("io.lettuce");

    static {
        QUIET.setLevel(Level.OFF);
    }

    private RedisClient lettuce;
    private LettuceLockClient shared;

    @BeforeEach
    void connectLettuce() {
        lettuce = RedisClient.create(server.url());
        shared = LettuceLockClient.connect(lettuce, patient);
    }

    @AfterEach
    void disconnectLettuce() {
        shared.close();
        lettuce.shutdown(Duration.ZERO, Duration.ofSeconds(2));
    }

    private static <T> T result(CompletableFuture<T> future) {
        return Other.result(future);
    }

    @Test
    void waitersAreServedInOrder() {
        AsyncHold first = result(shared.lock("a").lock());
        assertTrue(first.isHeld());
        List<Integer> order = new CopyOnWriteArrayList<>();
        List<CompletableFuture<Boolean>> ends = new ArrayList<>();
        for (int number = 0; number < 6; number++) {
            int mine = number;
            ends.add(shared.lock("a").lock().thenCompose(hold -> {
                assertTrue(hold.fence() > first.fence());
                order.add(mine);
                return hold.unlock();
            }));
            awaitWaiters("a", number + 1);
        }
        assertTrue(result(first.unlock()));
        assertFalse(first.isHeld());
        ends.forEach(end -> assertTrue(result(end)));
        assertEquals(List.of(0, 1, 2, 3, 4, 5), order);
        assertFalse(server.redis.exists("a"));
        assertFalse(result(first.unlock()), "it is over");
    }

    @Test
    void tenThousandWaitersShareTwoConnections() {
        int locksCount = 20;
        int waiters = 500;
        long before = connections();
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
        assertEquals(before, connections());
        long start = System.nanoTime();
        first.forEach(hold -> assertTrue(result(hold.unlock())));
        ends.forEach(end -> assertTrue(result(end)));
        System.out.printf(
                "%d waiters over two connections: all had the lock within %d ms%n",
                locksCount * waiters, (System.nanoTime() - start) / 1_000_000);
    }

    private long connections() {
        String info = server.info("clients");
        return Long.parseLong(info.replaceAll("(?s).*connected_clients:(\\d+).*", "$1"));
    }

    @Test
    void aClientAtItsDefaultsAmongEightIsGrantedInItsTurn() throws Exception {
        long holdMs = 100;
        try (LettuceLockClient client = LettuceLockClient.connect(lettuce, LockOptions.defaults());
                Crowd crowd = new Crowd(server, 8, holdMs)) {
            awaitWaiters("a", 7);
            int before = crowd.holds();
            Optional<AsyncHold> hold =
                    result(client.lock("a").tryLock(Duration.ofMillis(30 * holdMs)));
            int after = crowd.holds() - before;
            assertTrue(hold.isPresent());
            assertTrue(after <= 10, after + " holds of others came first");
            result(hold.get().unlock());
        }
    }

    @Test
    void readersShareAndAWriterWaits() {
        AsyncHold one = result(shared.readLock("a").lock());
        AsyncHold two = result(shared.readLock("a").tryLock()).orElseThrow();
        assertTrue(result(shared.lock("a").tryLock()).isEmpty());
        CompletableFuture<AsyncHold> writer = shared.lock("a").lock();
        awaitWaiters("a", 1);
        assertTrue(result(shared.readLock("a").tryLock()).isEmpty(), "it passes no writer");
        result(one.unlock());
        assertFalse(writer.isDone());
        result(two.unlock());
        assertTrue(result(result(writer).unlock()));
    }

    @Test
    void aLostSubscriptionIsMadeAgainAndItsWaitersAskAgain() {
        AsyncHold first = result(shared.lock("a").lock());
        CompletableFuture<AsyncHold> waiting = shared.lock("a").lock();
        awaitWaiters("a", 1);
        Future<Void> later = other.starts(() -> locks.lock("a").lock());
        awaitWaiters("a", 2);
        server.redis.executeCommand(
                TestServer.command("CLIENT").add("KILL").add("TYPE").add("pubsub"));
        result(first.unlock()); // Its message may reach nobody.
        AsyncHold hold = result(waiting);
        assertFalse(later.isDone(), "the later one did not pass it");
        result(hold.unlock());
        Other.result(later);
    }

    private interface WhileItWaits {
        void plays(RedisLock lock, FaultyProxy proxy, CompletableFuture<AsyncHold> waiting)
                throws Exception;
    }

    /** With a client behind a proxy that waits for the lock {@code a}, which is held. */
    private void behindAProxy(LockOptions chosen, WhileItWaits test) throws Exception {
        RedisLock lock = locks.lock("a");
        lock.lock();
        try (FaultyProxy proxy = new FaultyProxy(server.port());
                LettuceLockClient far = LettuceLockClient.connect(client(proxy), chosen)) {
            CompletableFuture<AsyncHold> waiting = far.lock("a").lock();
            awaitWaiters("a", 1);
            test.plays(lock, proxy, waiting);
        }
    }

    @Test
    void aMessageThatIsLostIsMadeUpForAtTheEndOfTheSlice() throws Exception {
        behindAProxy(
                LockOptions.defaults().withSlice(Duration.ofMillis(300)),
                (lock, proxy, waiting) -> {
                    proxy.deaf = true;
                    lock.unlock();
                    assertTrue(result(result(waiting).unlock()));
                });
    }

    @Test
    void aPlaceOutlivesBothConnections() throws Exception {
        behindAProxy(
                LockOptions.defaults().withSlice(Duration.ofHours(1)), (lock, proxy, waiting) -> {
                    Future<Void> later = other.starts(() -> lock.lock());
                    awaitWaiters("a", 2);
                    proxy.cut(400);
                    lock.unlock(); // Its turn comes while nobody listens.
                    AsyncHold hold = result(waiting);
                    assertFalse(later.isDone(), "the later one did not pass it");
                    result(hold.unlock());
                    Other.result(later);
                });
    }

    @Test
    void aDeadClientCostsItsGraceAtMost() throws Exception {
        long graceMs = 600;
        behindAProxy(options.withGrace(Duration.ofMillis(graceMs)), (lock, proxy, dead) -> {
            Future<Void> waiting = other.starts(() -> lock.lock());
            awaitWaiters("a", 2);
            long subscribed = subscribers();
            proxy.shut();
            Eventually.isTrue("it does not listen", () -> subscribers() < subscribed);
            long start = System.nanoTime();
            lock.unlock();
            Other.result(waiting);
            assertItCostItsGraceAtMost("a dead listener", graceMs, start);
            dead.cancel(false);
        });
    }

    private long subscribers() {
        Object channels =
                server.redis.executeCommand(TestServer.command("PUBSUB").add("CHANNELS"));
        return ((List<?>) channels).size();
    }

    @ParameterizedTest
    @ValueSource(strings = {"time over", "cancelled", "closed"})
    void aWaiterThatGivesUpLeavesNoPlace(String reason) {
        RedisLock lock = locks.lock("a");
        lock.lock();
        switch (reason) {
            case "time over" -> {
                assertTrue(
                        result(shared.lock("a").tryLock(Duration.ofMillis(200))).isEmpty());
                assertEquals(0, server.waiting("a"));
            }
            case "cancelled" -> {
                CompletableFuture<AsyncHold> waiting = shared.lock("a").lock();
                awaitWaiters("a", 1);
                waiting.cancel(false);
                awaitWaiters("a", 0);
            }
            default -> {
                CompletableFuture<AsyncHold> waiting = shared.lock("a").lock();
                awaitWaiters("a", 1);
                shared.close();
                assertEquals(0, server.waiting("a"));
                assertThrows(IllegalStateException.class, () -> result(waiting));
            }
        }
        lock.unlock();
        assertFalse(server.redis.exists("a"), "nothing was left to it");
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
            Eventually.isTrue("it is free", () -> !server.redis.exists("a"));
        }
    }

    @Test
    void aHoldIsRenewedAndItsLossIsTold() throws Exception {
        try (LettuceLockClient quick = LettuceLockClient.connect(lettuce, options)) {
            AsyncHold hold = result(quick.lock("a").lock());
            Eventually.pause(2 * TTL_MS);
            assertTrue(hold.isHeld());
            assertFalse(hold.lost().isDone());
            server.redis.del("a");
            assertEquals(hold.fence(), awaitLost().fence());
            assertTrue(result(hold.lost()).contains("the server says"));
            assertFalse(hold.isHeld());
            assertFalse(result(hold.unlock()));

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

    @Test
    void anOldClientsLockIsWaitedFor() {
        server.redis.set(
                "a",
                "old",
                redis.clients.jedis.params.SetParams.setParams().nx().px(300));
        assertTrue(result(shared.lock("a").tryLock()).isEmpty());
        assertTrue(result(result(shared.lock("a").lock()).unlock()));
        AsyncHold hold = result(shared.lock("a").lock());
        CompletableFuture<AsyncHold> waiting = shared.lock("a").lock();
        awaitWaiters("a", 1);
        // Another type over the key ends the place by a message.
        server.redis.set(
                "a", "old", redis.clients.jedis.params.SetParams.setParams().px(300));
        assertTrue(result(result(waiting).unlock()));
        assertFalse(result(hold.unlock()));
    }

    @Test
    void aModuleThatCannotNotifyIsSaidToBe() throws Exception {
        try (FaultyProxy proxy = new FaultyProxy(server.port());
                LettuceLockClient client = LettuceLockClient.connect(client(proxy), patient)) {
            proxy.old = true;
            CompletableFuture<AsyncHold> refused = client.lock("a").lock();
            ExecutionException failed =
                    assertThrows(ExecutionException.class, () -> refused.get(20, TimeUnit.SECONDS));
            assertInstanceOf(IllegalStateException.class, failed.getCause());
            assertTrue(failed.getCause().getMessage().contains("0.1"));
        }
    }

    private final List<RedisClient> others = new ArrayList<>();

    private RedisClient client(FaultyProxy proxy) {
        RedisClient client = RedisClient.create(proxy.url());
        others.add(client);
        return client;
    }

    @AfterEach
    void shutDownOthers() {
        others.forEach(client -> client.shutdown(Duration.ZERO, Duration.ofSeconds(2)));
        others.clear();
    }
}
