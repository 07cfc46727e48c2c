package io.github.redislock;

import static org.junit.jupiter.api.Assertions.*;

import io.github.redislock.testing.Eventually;
import io.github.redislock.testing.TestServer;

import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;

/** What becomes of a reader or a writer that turns into the other. */
class RedisReadWriteLockTest extends ServerTest {
    private final LockOptions longer = options.withTtl(Duration.ofSeconds(6));
    private RedisLock read;
    private RedisLock write;

    @BeforeEach
    void makeLock() {
        RedisReadWriteLock lock = locks.readWriteLock("a");
        read = lock.readLock();
        write = lock.writeLock();
    }

    private boolean anotherReads() {
        return other.does(() -> read.tryLock());
    }

    @Test
    void theWriterTurnsIntoAReader() {
        write.lock();
        long fence = write.fence();
        write.lock();
        write.unlock();
        read.lock();
        read.unlock();
        read.lock();
        assertFalse(anotherReads(), "still writing");
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
    void aWriterThatHearsNothingOfItsTurnIsAReader() {
        RedisReadWriteLock lock =
                behind(longer.withReconnect(Duration.ZERO)).readWriteLock("a");
        lock.writeLock().lock();
        lock.readLock().lock();
        long fence = lock.readLock().fence();
        proxy.silent = true;
        assertSays(RuntimeException.class, "JedisConnection", lock.writeLock()::unlock);
        proxy.silent = false;
        assertTrue(read.tryLock());
        assertFalse(lock.writeLock().tryLock());
        assertEquals(0, lock.writeLock().getHoldCount());
        read.unlock();
        assertTrue(lock.writeLock().tryLock());
        assertEquals(fence, lock.writeLock().fence());
        assertFalse(read.tryLock());
        assertNull(lost.poll());
    }

    @Test
    void aWriterWhoseLeaseEndsBeforeTheAnswerIsNoReader() throws Exception {
        RedisReadWriteLock lock = behind(longer).readWriteLock("a");
        lock.writeLock().lock(500, TimeUnit.MILLISECONDS);
        lock.readLock().lock(500, TimeUnit.MILLISECONDS);
        proxy.replyDelayMs = 800;
        assertThrows(IllegalMonitorStateException.class, lock.writeLock()::unlock);
        assertFalse(lock.readLock().isHeldByCurrentThread());
        awaitLost();
    }

    @Test
    void theOnlyReaderTurnsIntoTheWriterAndBackWithALongerLease() {
        read.lock(1, TimeUnit.HOURS);
        long fence = read.fence();
        assertTrue(write.tryLock());
        assertEquals(fence, write.fence());
        assertTrue(server.leftMs("a") > 3_500_000);
        assertFalse(anotherReads());
        write.unlock();
        assertTrue(server.leftMs("a") > 3_500_000);
        assertTrue(anotherReads());
        assertEquals(fence, read.fence());
    }

    @Test
    void aShareIsNotLostWhileNoNewGrantsAreMade() throws Exception {
        TestServer guarded = closing(TestServer.start());
        proxy.serverPort = guarded.port();
        RedisLockClient far = behind(longer);
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

    /** The watchdog of a long ttl does not see it first. */
    @Test
    void anInterruptedReaderWhoseHoldEndedIsToldSo() throws Exception {
        server.ask("RWLOCK.RLOCK", "a", "stranger", 60_000);
        RedisReadWriteLock lock = behind(options.withTtl(HOUR)).readWriteLock("a");
        other.does(() -> lock.readLock().lock());
        long fence = other.does(() -> lock.readLock().fence());
        List<String> readers = server.holders("a");
        Other.Action upgrade = () -> lock.writeLock().lockInterruptibly();
        proxy.replyDelayMs = 50;
        interrupt(awaitWaiter(upgrade));
        assertEquals(0, server.waiting("a"), "its place would keep other readers out");
        Future<Void> writing = awaitWaiter(upgrade);
        readers.stream()
                .filter(token -> !token.equals("stranger"))
                .forEach(token -> server.ask("LOCK.RELEASE", "a", token));
        interrupt(writing);
        assertEquals(List.of("stranger"), server.holders("a"), "nothing is left behind");
        assertFalse(other.does(() -> lock.readLock().isHeldByCurrentThread()));
        assertEquals(fence, awaitLost().fence());
    }
}
