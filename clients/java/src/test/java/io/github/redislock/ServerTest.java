package io.github.redislock;

import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.TestInstance;

import java.time.Duration;
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
}
