package io.github.redislock;

import static org.junit.jupiter.api.Assertions.*;

import io.github.redislock.testing.Eventually;
import io.github.redislock.testing.TestServer;

import org.junit.jupiter.api.*;

import java.time.Duration;
import java.util.concurrent.Future;

/** Tests with a server, a network that can fail, a client that has another, and another thread. */
@TestInstance(TestInstance.Lifecycle.PER_CLASS)
abstract class ServerTest extends ClosingTest {
    static final long TTL_MS = 3_000;
    static final Duration MINUTE = Duration.ofMinutes(1);
    static final Duration HOUR = Duration.ofHours(1);

    /** With a quick watchdog. */
    final LockOptions options = patient.withTtl(Duration.ofMillis(TTL_MS));

    TestServer server;
    FaultyProxy proxy;
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
    void connect() throws Exception {
        server.ask("FLUSHALL");
        server.ask("CONFIG", "RESETSTAT");
        lost.clear();
        proxy = closing(new FaultyProxy(server.port()));
        locks = closing(RedisLockClient.connect(server.url(), options));
        other = closing(new Other());
    }

    @AfterEach
    void heal() {
        proxy.heal();
        server.resume();
        server.ask("REPLICAOF", "NO", "ONE");
        server.ask("CONFIG", "SET", "min-replicas-to-write", 0);
        server.ask("ACL", "SETUSER", "default", "+@all");
    }

    @AfterAll
    void stopServer() {
        server.close();
    }

    /** A client behind the proxy. */
    Way.Opened by(Way way, LockOptions options) {
        return closing(way.open(proxy.url(), options));
    }

    /** One of Jedis, whose threads wait. */
    RedisLockClient behind(LockOptions options) {
        return by(Way.JEDIS, options).locks();
    }

    void awaitWaiters(String name, long count) {
        Eventually.isTrue(count + " wait for " + name, () -> server.waiting(name) == count);
    }

    /** Counted from here on. */
    void awaitCalls(String command, int count) {
        server.ask("CONFIG", "RESETSTAT");
        Eventually.isTrue(command + " is sent", () -> server.calls(command) >= count);
    }

    void awaitFree(String name) {
        Eventually.isTrue(name + " is free", () -> !server.isLocked(name));
    }

    /** Interrupts the other thread, which then waits no more. */
    void interrupt(Future<?> waiting) {
        other.thread.interrupt();
        AssertionError cut = assertThrows(AssertionError.class, () -> Other.result(waiting));
        assertInstanceOf(InterruptedException.class, cut.getCause());
    }

    /** Has the other thread wait for the lock {@code a}, and returns when it does. */
    Future<Void> awaitWaiter(Other.Action action) {
        long before = server.waiting("a");
        Future<Void> waiting = other.starts(action);
        awaitWaiters("a", before + 1);
        return waiting;
    }

    /** The same for a hold that a client of any kind gets. */
    Future<RedisHold> awaitWaiter(Way.Opened opened, long leaseMs) {
        long before = server.waiting("a");
        Future<RedisHold> waiting = other.starts(() -> opened.awaits("a", leaseMs));
        awaitWaiters("a", before + 1);
        return waiting;
    }

    /**
     * That the lock {@code a} ends then, with nine seconds for a busy machine. It may end a little
     * later: the client counts from its sending of a request, the server from its receipt.
     */
    void assertItLastsFor(Duration time) {
        assertEquals(time.toMillis() - 4_000, server.leftMs("a"), 5_000, "ms that it lasts");
    }
}
