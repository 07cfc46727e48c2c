package io.github.redislock;

import static org.junit.jupiter.api.Assertions.*;

import io.github.redislock.testing.Eventually;

import org.junit.jupiter.api.*;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.client.RedisException;
import org.redisson.config.Config;

import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;

/** A rolling change from Redisson: its locks and these are on the same names for a while. */
class RedissonTest extends ServerTest {
    private RedissonClient redisson;

    @BeforeEach
    void connectRedisson() {
        Config config = new Config();
        config.useSingleServer().setAddress(server.url());
        redisson = Redisson.create(config);
    }

    @AfterEach
    void disconnectRedisson() {
        redisson.shutdown();
    }

    @Test
    void aLockOfRedissonIsWaitedFor() throws Exception {
        RLock old = redisson.getLock("a");
        old.lock();
        RedisLock lock = locks.lock("a");
        assertTrue(lock.isLocked());
        assertFalse(lock.tryLock());
        assertFalse(lock.tryLock(150, TimeUnit.MILLISECONDS));
        Future<Void> waiting = other.starts(() -> lock.lock());
        Eventually.pause(150);
        assertFalse(waiting.isDone());
        assertEquals("hash", server.ask("TYPE", "a"));
        old.unlock();
        Other.result(waiting);
        assertEquals("redislock", server.ask("TYPE", "a"));
    }

    @Test
    void redissonIsRefusedByAnErrorAndDoesNotWait() {
        RedisLock lock = locks.lock("a");
        lock.lock();
        RLock old = redisson.getLock("a");
        for (Other.Action take :
                new Other.Action[] {old::lock, old::tryLock, () -> old.tryLock(1, TimeUnit.SECONDS)
                }) {
            RedisException refused = assertThrows(RedisException.class, take::run);
            assertTrue(refused.getMessage().contains("WRONGTYPE"), refused.getMessage());
        }
        assertTrue(lock.isHeldByCurrentThread());
        lock.unlock();
        assertTrue(old.tryLock());
    }

    @Test
    void redissonsReadWriteLockIsWaitedForAndRefused() throws Exception {
        redisson.getReadWriteLock("a").readLock().lock();
        RedisReadWriteLock lock = locks.readWriteLock("a");
        assertFalse(lock.readLock().tryLock(), "not even readers share");
        redisson.getReadWriteLock("a").readLock().unlock();
        assertTrue(lock.readLock().tryLock());
        assertThrows(
                RedisException.class,
                () -> redisson.getReadWriteLock("a").readLock().tryLock());
    }
}
