package io.github.redislock;

import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.TestInstance;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.Future;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/** Tests with a server, a client whose watchdog is quick, and another thread. */
@TestInstance(TestInstance.Lifecycle.PER_CLASS)
abstract class ServerTest {
    static final long TTL_MS = 900;

    final LinkedBlockingQueue<LostLock> lost = new LinkedBlockingQueue<>();
    final LockOptions options =
            LockOptions.defaults().withTtl(Duration.ofMillis(TTL_MS)).withOnLost(lost::add);
    TestServer server;
    RedisLockClient locks;
    Other other;

    @BeforeAll
    void startServer() {
        server = TestServer.start();
    }

    @BeforeEach
    void connect() {
        server.redis.flushAll();
        lost.clear();
        locks = RedisLockClient.connect(server.url(), options);
        other = new Other();
    }

    @AfterEach
    void disconnect() {
        other.close();
        locks.close();
    }

    @AfterAll
    void stopServer() {
        server.close();
    }

    LostLock awaitLost() throws InterruptedException {
        LostLock told = lost.poll(Eventually.BOUND.toSeconds(), TimeUnit.SECONDS);
        if (told == null) {
            throw new AssertionError("nobody was told of a lost lock");
        }
        return told;
    }

    void awaitWaiters(String name, long count) {
        Eventually.isTrue(count + " wait for " + name, () -> server.waiting(name) == count);
    }

    /**
     * The numbers of waiters in the order in which they had the lock {@code a}. They ask by the
     * client one after the other, wait together for {@code waitMs}, and hold for {@code holdMs}.
     */
    List<Integer> orderOf(int waiters, RedisLockClient client, long waitMs, long holdMs) {
        locks.lock("a").lock();
        List<Integer> order = new CopyOnWriteArrayList<>();
        List<Other> others = new ArrayList<>();
        List<Future<Void>> ends = new ArrayList<>();
        for (int number = 0; number < waiters; number++) {
            int mine = number;
            Other waiter = new Other();
            others.add(waiter);
            ends.add(waiter.starts(() -> {
                RedisLock lock = client.lock("a");
                lock.lock();
                order.add(mine);
                Eventually.pause(holdMs);
                lock.unlock();
            }));
            awaitWaiters("a", number + 1);
        }
        Eventually.pause(waitMs);
        locks.lock("a").unlock();
        ends.forEach(Other::result);
        others.forEach(Other::close);
        return order;
    }

    /** What a client that died while it waited cost the next one, from {@code startNanos} on. */
    static void assertItCostItsGraceAtMost(String who, long graceMs, long startNanos) {
        long tookMs = (System.nanoTime() - startNanos) / 1_000_000;
        System.out.printf("%s cost %d ms of its grace of %d%n", who, tookMs, graceMs);
        assertTrue(tookMs >= graceMs / 2 && tookMs < graceMs + 1_000, "it cost " + tookMs);
    }
}
