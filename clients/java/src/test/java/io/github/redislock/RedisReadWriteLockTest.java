package io.github.redislock;

import static org.junit.jupiter.api.Assertions.*;

import io.github.redislock.testing.Eventually;
import io.github.redislock.testing.TestServer;

import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

import redis.clients.jedis.exceptions.JedisConnectionException;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;

/** Readers, writers, and what becomes of one that turns into the other. */
class RedisReadWriteLockTest extends ServerTest {
    private RedisLock read;
    private RedisLock write;

    @BeforeEach
    void makeLock() {
        RedisReadWriteLock lock = locks.readWriteLock("a");
        read = lock.readLock();
        write = lock.writeLock();
    }

    @Test
    void bothAreReentrant() {
        read.lock();
        read.lock();
        assertEquals(2, read.getHoldCount());
        read.unlock();
        assertTrue(read.isHeldByCurrentThread());
        read.unlock();
        write.lock();
        write.lock();
        write.unlock();
        read.lock();
        read.unlock();
        assertFalse(other.does(() -> read.tryLock()), "it writes on");
        write.unlock();
        assertFalse(server.isLocked("a"));
        assertThrows(IllegalMonitorStateException.class, read::unlock);
        assertThrows(IllegalMonitorStateException.class, write::unlock);
    }

    @Test
    void theWriterTurnsIntoAReader() {
        write.lock();
        long fence = write.fence();
        read.lock();
        assertFalse(other.does(() -> read.tryLock()), "still writing");
        Future<Void> reading = awaitWaiter(() -> read.lock());
        write.unlock();
        Other.result(reading);
        assertEquals(fence, read.fence());
        assertFalse(write.isHeldByCurrentThread());
        assertThrows(IllegalMonitorStateException.class, write::unlock);
        Eventually.pause(2 * TTL_MS);
        assertEquals(1, read.getHoldCount(), "the watchdog goes on");
        read.unlock();
        other.does(() -> read.unlock());
        assertFalse(server.isLocked("a"));
    }

    @Test
    void aLostWriterDoesNotTurnIntoAReader() {
        write.lock();
        read.lock();
        server.ask("DEL", "a");
        assertThrows(IllegalMonitorStateException.class, write::unlock);
        assertFalse(read.isHeldByCurrentThread());
        assertFalse(server.isLocked("a"), "nor is anything left behind");
    }

    @Test
    void aWriterThatHearsNothingOfItsTurnIsAReader() throws Exception {
        LockOptions brief = options.withTtl(Duration.ofSeconds(6)).withReconnect(Duration.ZERO);
        try (FaultyProxy proxy = new FaultyProxy(server.port());
                RedisLockClient far = RedisLockClient.connect(proxy.url(), brief)) {
            RedisReadWriteLock lock = far.readWriteLock("a");
            lock.writeLock().lock();
            lock.readLock().lock();
            long fence = lock.readLock().fence();
            proxy.silent = true;
            assertThrows(JedisConnectionException.class, lock.writeLock()::unlock);
            proxy.silent = false;
            assertTrue(read.tryLock());
            assertFalse(lock.writeLock().tryLock());
            assertEquals(0, lock.writeLock().getHoldCount());
            read.unlock();
            assertTrue(lock.writeLock().tryLock());
            assertEquals(fence, lock.writeLock().fence());
            assertFalse(read.tryLock());
        }
        assertNull(lost.poll());
    }

    @Test
    void aWriterWhoseLeaseEndsBeforeTheAnswerIsNoReader() throws Exception {
        try (FaultyProxy proxy = new FaultyProxy(server.port());
                RedisLockClient far = RedisLockClient.connect(
                        proxy.url(), options.withTtl(Duration.ofSeconds(6)))) {
            RedisReadWriteLock lock = far.readWriteLock("a");
            lock.writeLock().lock(500, TimeUnit.MILLISECONDS);
            lock.readLock().lock(500, TimeUnit.MILLISECONDS);
            proxy.replyDelayMs = 800;
            assertThrows(IllegalMonitorStateException.class, lock.writeLock()::unlock);
            assertFalse(lock.readLock().isHeldByCurrentThread());
            assertNotNull(awaitLost());
        }
    }

    @Test
    void theOnlyReaderTurnsIntoTheWriterAndBack() {
        read.lock();
        long fence = read.fence();
        assertTrue(write.tryLock());
        assertEquals(fence, write.fence());
        assertFalse(other.does(() -> read.tryLock()));
        write.unlock();
        assertTrue(other.does(() -> read.tryLock()));
        assertEquals(fence, read.fence());
    }

    @Test
    void aShareIsNotLostWhileNoNewGrantsAreMade() throws Exception {
        LockOptions brief = options.withTtl(Duration.ofSeconds(6));
        try (TestServer guarded = TestServer.start();
                FaultyProxy proxy = new FaultyProxy(guarded.port());
                RedisLockClient far = RedisLockClient.connect(proxy.url(), brief)) {
            RedisReadWriteLock reader = far.readWriteLock("a");
            RedisReadWriteLock writer = far.readWriteLock("b");
            reader.readLock().lock();
            writer.writeLock().lock();
            writer.readLock().lock();
            guarded.ask("CONFIG", "SET", "lock.max-ttl", 60_000);
            guarded.ask("CONFIG", "SET", "lock.guard", "restart");
            assertFalse(reader.writeLock().tryLock(50, TimeUnit.MILLISECONDS));
            assertEquals(0, guarded.waiting("a"));
            proxy.swallowFirstFence();
            writer.writeLock().unlock();
            assertTrue(proxy.hasSwallowed());
            for (RedisLock mine : List.of(reader.readLock(), writer.readLock())) {
                assertTrue(mine.check());
                mine.unlock();
                assertFalse(guarded.isLocked(mine.getName()));
            }
        }
        assertNull(lost.poll());
    }

    @Test
    void aReaderBesideOthersWaitsToWriteAndKeepsReading() throws InterruptedException {
        other.does(() -> read.lock());
        read.lock();
        assertFalse(write.tryLock());
        assertFalse(write.tryLock(50, TimeUnit.MILLISECONDS));
        assertTrue(read.isHeldByCurrentThread());
        Future<Void> leaving = other.starts(() -> {
            awaitWaiters("a", 1);
            Eventually.pause(2 * TTL_MS);
            read.unlock();
        });
        write.lock();
        Other.result(leaving);
        assertEquals(1, write.getHoldCount());
        assertEquals(1, read.getHoldCount());
    }

    @Test
    void twoReadersThatWantToWriteAreToldSo() {
        read.lock();
        other.does(() -> read.lock());
        Future<Void> writing = awaitWaiter(() -> write.lock());
        assertFalse(write.tryLock());
        assertThrows(LockDeadlockException.class, write::lock);
        assertTrue(read.isHeldByCurrentThread());
        read.unlock();
        Other.result(writing);
    }

    @Test
    void anInterruptedReaderWhoseHoldEndedIsToldSo() throws Exception {
        server.ask("RWLOCK.RLOCK", "a", "stranger", 60_000);
        // With a watchdog that does not see it first.
        try (RedisLockClient slow =
                RedisLockClient.connect(server.url(), options.withTtl(Duration.ofMinutes(10)))) {
            RedisReadWriteLock lock = slow.readWriteLock("a");
            other.does(() -> lock.readLock().lock());
            long fence = other.does(() -> lock.readLock().fence());
            List<String> readers = server.holders("a");
            Future<Void> writing = awaitWaiter(() -> lock.writeLock().lockInterruptibly());
            for (String token : readers) {
                if (!token.equals("stranger")) {
                    server.ask("LOCK.RELEASE", "a", token);
                }
            }
            interrupt(writing);
            assertEquals(List.of("stranger"), server.holders("a"), "nothing is left behind");
            assertFalse(other.does(() -> lock.readLock().isHeldByCurrentThread()));
            assertEquals(fence, awaitLost().fence());
        }
    }
}
