package io.github.redislock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.lettuce.core.RedisClient;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;

/** Waits that somebody else ends by {@code LOCK.CANCEL}. */
class CancelTest extends ServerTest {
    private static void assertCancelled(Future<?> wait) {
        ExecutionException failed =
                assertThrows(ExecutionException.class, () -> wait.get(20, TimeUnit.SECONDS));
        assertInstanceOf(LockCancelledException.class, failed.getCause());
    }

    /** The others, which ask every 50 ms, are told only of what ends while they ask. */
    @ParameterizedTest
    @EnumSource(names = {"JEDIS", "JEDIS_UNIFIED", "JEDIS_POOL", "LETTUCE", "LETTUCE_CLIENT"})
    void aWaitThatBlocks(Driver driver) throws Exception {
        try (Driver.Opened opened = driver.open(server.url(), LockOptions.defaults());
                Other another = new Other()) {
            RedisLock lock = opened.locks.lock("a");
            lock.lock();
            Future<Void> endless = other.starts(() -> lock.lock());
            Future<Boolean> bounded = another.starts(() -> lock.tryLock(60, TimeUnit.SECONDS));
            awaitWaiters("a", 2);
            server.ask("LOCK.CANCEL", "a");
            assertCancelled(endless);
            assertCancelled(bounded);
            assertEquals(0, server.waiting("a"));
            lock.unlock();
        }
    }

    @Test
    void aWaitThatIsTold() {
        RedisClient lettuce = RedisClient.create(server.url());
        try (LettuceLockClient mine =
                LettuceLockClient.connect(lettuce, LockOptions.defaults().withOnLost(lost::add))) {
            AsyncHold hold = Other.result(mine.lock("a").lock());
            CompletableFuture<AsyncHold> endless = mine.lock("a").lock();
            CompletableFuture<Optional<AsyncHold>> bounded =
                    mine.readLock("a").tryLock(Duration.ofMinutes(1));
            awaitWaiters("a", 2);
            server.ask("LOCK.CANCEL", "a");
            assertCancelled(endless);
            assertCancelled(bounded);
            assertEquals(0, server.waiting("a"));
            Other.result(hold.unlock());
        } finally {
            lettuce.shutdown(Duration.ZERO, Duration.ofSeconds(2));
        }
        assertNull(lost.poll());
    }
}
