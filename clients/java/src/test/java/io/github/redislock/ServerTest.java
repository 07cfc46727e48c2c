package io.github.redislock;

import static org.junit.jupiter.api.Assertions.*;

import io.github.redislock.testing.Eventually;
import io.github.redislock.testing.TestServer;

import org.junit.jupiter.api.*;

import java.time.Duration;
import java.util.concurrent.*;

/** Tests with a server, a client whose watchdog is quick, and another thread. */
@TestInstance(TestInstance.Lifecycle.PER_CLASS)
abstract class ServerTest {
    static final long TTL_MS = 3_000;

    final LinkedBlockingQueue<LostLock> lost = new LinkedBlockingQueue<>();
    final LockOptions options =
            LockOptions.defaults().withTtl(Duration.ofMillis(TTL_MS)).withOnLost(lost::add);
    TestServer server;
    RedisLockClient locks;
    Other other;

    @BeforeAll
    void startServer() {
        server = newServer();
    }

    TestServer newServer() {
        return TestServer.start();
    }

    @BeforeEach
    void connect() {
        server.ask("FLUSHALL");
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

    /** Interrupts the other thread, which then waits no more. */
    void interrupt(Future<?> waiting) {
        other.thread.interrupt();
        ExecutionException cut =
                assertThrows(ExecutionException.class, () -> waiting.get(20, TimeUnit.SECONDS));
        assertInstanceOf(InterruptedException.class, cut.getCause());
    }

    /** Has the other thread wait for the lock {@code a}, and returns when it does. */
    Future<Void> awaitWaiter(Other.Action action) {
        long before = server.waiting("a");
        Future<Void> waiting = other.starts(action);
        awaitWaiters("a", before + 1);
        return waiting;
    }

    /** That the lock {@code a} ends then, with ten seconds for a busy machine. */
    void assertItLastsFor(Duration time) {
        long leftMs = server.leftMs("a");
        assertTrue(
                leftMs > time.toMillis() - 10_000 && leftMs <= time.toMillis(),
                "it lasts for " + leftMs + " ms more");
    }
}
