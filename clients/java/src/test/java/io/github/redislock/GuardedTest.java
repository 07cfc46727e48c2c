package io.github.redislock;

import static org.junit.jupiter.api.Assertions.*;

import io.github.redislock.testing.Eventually;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

import redis.clients.jedis.exceptions.JedisConnectionException;

import java.io.IOException;
import java.time.Duration;
import java.util.List;

/** Commands that run only while a lock is held, and jobs that run once. */
@Timeout(value = 60, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class GuardedTest extends ServerTest {
    private static final Duration MINUTE = Duration.ofMinutes(1);
    private static final Duration LEAST = Duration.ofSeconds(30);

    @Test
    void aLostConnectionIsSaidAndNothingRunsTwice() throws Exception {
        try (FaultyProxy proxy = new FaultyProxy(server.port());
                RedisLockClient client = RedisLockClient.connect(proxy.url(), options)) {
            RedisLock lock = client.lock("a");
            lock.lock();
            proxy.silent = true;
            assertThrows(JedisConnectionException.class, () -> lock.exec("INCR", "x"));
            assertEquals("1", server.ask("GET", "x"));
            proxy.silent = false;
            Eventually.isTrue("it is held", lock::check);
            lock.unlock();
        }
    }

    @Test
    void aJobHasAHoldThatLastsAsLongThoughItIsClosed() {
        assertTrue(locks.runOnce("a", MINUTE, LEAST, hold -> {
            assertEquals(List.of(hold.id()), server.holders("a"));
            assertEquals(1L, hold.exec("INCR", "x"));
            assertFalse(locks.runOnce("a", MINUTE, LEAST, no -> server.ask("INCR", "x")));
            hold.close();
        }));
        assertEquals("1", server.ask("GET", "x"));
        assertItLastsFor(LEAST);
    }

    /** Kotlin and others throw checked exceptions, too. */
    @Test
    void aJobThatFailsIsNotRunAgainEither() {
        for (Exception failure :
                List.of(new IllegalArgumentException("the job"), new IOException("the job"))) {
            Exception told = assertThrows(
                    Exception.class,
                    () -> locks.runOnce("a", MINUTE, LEAST, hold -> {
                        GuardedTest.<RuntimeException>throwAny(failure);
                    }));
            assertEquals(failure, told);
            assertItLastsFor(LEAST);
            server.ask("DEL", "a");
        }
    }

    @SuppressWarnings("unchecked")
    private static <E extends Exception> void throwAny(Exception failure) throws E {
        throw (E) failure;
    }

    @Test
    void aJobThatTakesLongerThanAtMostIsTold() throws Exception {
        Duration most = Duration.ofMillis(500);
        assertTrue(locks.runOnce(
                "a", most, most, hold -> Eventually.isTrue("it is over", () -> !hold.isHeld())));
        assertEquals("a", awaitLost().name());
        assertThrows(
                IllegalArgumentException.class, () -> locks.runOnce("a", most, LEAST, hold -> {}));
    }

    @Test
    void theEndOfAJobIsSentAgain() throws Exception {
        assertTrue(locks.runOnce("a", MINUTE, LEAST, hold -> server.cutConnections()));
        assertItLastsFor(LEAST);
    }
}
