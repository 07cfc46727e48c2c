package io.github.redislock;

import static org.junit.jupiter.api.Assertions.*;

import org.junit.jupiter.api.*;

import java.io.IOException;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;

/** What the README links under "How do I test my code?": a server that ends with its tests. */
class FixtureTest {
    private static final String REDIS = System.getenv().getOrDefault(
            "REDIS_SERVER", System.getenv("REDIS_LOCK_SERVERS") + "/redis-7.0.15/bin/redis-server");
    static Process server;
    static RedisLockClient locks;

    @BeforeAll
    static void start() throws Exception {
        String port;
        try (ServerSocket free = new ServerSocket(0)) {
            port = String.valueOf(free.getLocalPort());
        }
        String module = System.getenv("REDIS_LOCK_MODULE");
        String folder = Files.createTempDirectory("redis").toString();
        server = new ProcessBuilder(
                        REDIS, "--port", port, "--dir", folder, "--save", "", "--loadmodule", module)
                .redirectErrorStream(true)
                .redirectOutput(Path.of(folder, "log").toFile())
                .start();
        LockOptions patient = LockOptions.defaults().withReconnect(java.time.Duration.ofSeconds(20));
        locks = RedisLockClient.connect("redis://127.0.0.1:" + port, patient); // It waits for it.
    }

    @AfterAll
    static void end() {
        locks.close();
        server.destroy();
    }

    @Test
    void aLockIsTaken() throws IOException {
        assertTrue(locks.lock("a").tryLock());
        locks.lock("a").unlock();
    }
}
