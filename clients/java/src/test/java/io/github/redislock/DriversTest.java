package io.github.redislock;

import static org.junit.jupiter.api.Assertions.*;

import io.github.redislock.testing.Eventually;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.*;

import redis.clients.jedis.JedisPool;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicInteger;

/** The same by every way, with the pool and the settings that it has by default. */
class DriversTest extends ServerTest {
    private static final int THREADS = 20;

    private final LockOptions lingers =
            patient.withTtl(Duration.ofSeconds(6)).withLinger(Duration.ofSeconds(5));

    @ParameterizedTest
    @EnumSource(mode = EnumSource.Mode.EXCLUDE, names = "LETTUCE_FUTURES")
    void twentyThreadsThatWaitDoNotStallTheOwner(Way way) {
        RedisLock lock = by(way, patient).locks().lock("a");
        lock.lock();
        AtomicInteger inside = new AtomicInteger();
        List<Future<Void>> ends = Other.inThreads(THREADS, number -> {
            lock.lock();
            assertEquals(1, inside.incrementAndGet());
            inside.decrementAndGet();
            lock.unlock();
        });
        awaitWaiters("a", THREADS);
        lock.unlock();
        ends.forEach(Other::result);
        assertNull(lost.poll());
    }

    @ParameterizedTest
    @EnumSource
    void aCommandAnswersInTermsOfNoDriver(Way way) throws Exception {
        RedisHold hold = by(way, patient).take("a");
        assertEquals("OK", hold.exec("SET", "x", 41));
        assertEquals(42L, hold.exec("INCR", "x"));
        assertEquals(List.of("42"), hold.exec("MGET", "x".getBytes()));
        assertNull(hold.exec("GET", "y"));
        assertSays(RuntimeException.class, "WRONGTYPE", () -> hold.exec("LPUSH", "x", "1"));
        assertTrue(hold.isHeld());
        server.ask("DEL", "a");
        assertThrows(IllegalMonitorStateException.class, () -> hold.exec("INCR", "x"));
        assertFalse(hold.isHeld());
        assertEquals(hold.fence(), awaitLost().fence());
    }

    /** It was granted after a wait, before the connection of that ended. */
    @ParameterizedTest
    @EnumSource(mode = EnumSource.Mode.EXCLUDE, names = "JEDIS_UNIFIED")
    void aGrantAfterAWaitIsBoundToTheConnectionThatStays(Way way) {
        Way.Opened far = by(way, patient.withLinger(Duration.ofSeconds(1)));
        RedisHold held = locks.lock("a").tryAcquire();
        Future<RedisHold> waiting = awaitWaiter(far, -1);
        held.release();
        RedisHold hold = Other.result(waiting);
        Eventually.pause(1_500);
        assertTrue(hold.check());
        assertTrue(server.leftMs("a") > 20_000);
        assertNull(lost.poll());
        proxy.cut(-1);
        awaitFree("a");
    }

    @ParameterizedTest
    @EnumSource(names = {"JEDIS", "JEDIS_POOL", "LETTUCE"})
    void aConversionOnANewConnectionStays(Way way) {
        RedisReadWriteLock lock = by(way, lingers).locks().readWriteLock("a");
        lock.readLock().lock();
        for (boolean writes : new boolean[] {true, false}) {
            proxy.replyDelayMs = 200; // Binds it again while its answer is on the way.
            proxy.cut();
            if (writes) {
                assertTrue(lock.writeLock().tryLock());
            } else {
                lock.writeLock().unlock();
            }
            proxy.replyDelayMs = 0;
            awaitCalls("lock.renew", 1);
            assertEquals(writes, lock.writeLock().isLocked());
        }
        lock.readLock().unlock();
        assertNull(lost.poll());
    }

    @ParameterizedTest
    @EnumSource(names = {"JEDIS", "LETTUCE", "LETTUCE_FUTURES"})
    void aHoldThatCannotBeBoundIsNotLost(Way way) {
        RedisHold write = by(way, lingers).take("a");
        server.ask("RWLOCK.RLOCK", "a", server.holders("a").get(0), 6_000);
        RedisLock reader = locks.readWriteLock("a").readLock();
        assertTrue(reader.tryLock());
        server.ask("CONFIG", "RESETSTAT");
        proxy.cut();
        Eventually.isTrue(
                "it is bound in vain, and renewed after that",
                () -> server.calls("lock.acquire") > 0 && server.calls("lock.renew") > 1);
        assertTrue(write.isHeld());
        reader.unlock();
        Eventually.isTrue("a renewal binds it", () -> locks.lock("a").isLocked());
        write.release();
        assertNull(lost.poll());
    }

    /** After a long wait it is begun anew, and the answer to that comes late. */
    @ParameterizedTest
    @EnumSource(mode = EnumSource.Mode.EXCLUDE, names = "LETTUCE_CONNECTION") // No wait is long.
    void aLeaseThatIsOverWhenItIsHeardOfIsNoGrant(Way way) throws Exception {
        RedisHold held = locks.lock("a").tryAcquire();
        Future<RedisHold> waiting = awaitWaiter(by(way, patient), 500);
        Eventually.pause(60);
        proxy.withheld = "LOCK.RENEW";
        held.release();
        RedisHold next = locks.lock("a").acquire(); // After that lease.
        proxy.withheld = null;
        Eventually.isTrue("it waits again", () -> waiting.isDone() || server.waiting("a") == 1);
        assertFalse(waiting.isDone());
        next.release();
        assertNotNull(Other.result(waiting));
    }

    @ParameterizedTest
    @EnumSource
    void aReleaseWhoseAnswerIsLostHasReleased(Way way) {
        RedisHold hold = by(way, patient).take("a");
        proxy.silent = true;
        Future<Void> releasing = other.starts(() -> hold.release());
        awaitFree("a");
        proxy.silent = false;
        proxy.cut();
        Other.result(releasing);
    }

    @ParameterizedTest
    @EnumSource(mode = EnumSource.Mode.EXCLUDE, names = "LETTUCE_FUTURES")
    void aReleaseThatWasOnlyRefusedHasReleasedNothing(Way way) {
        RedisHold hold = by(way, patient).take("a");
        server.ask("DEL", "a");
        server.ask("CONFIG", "RESETSTAT");
        server.ask("REPLICAOF", "127.0.0.1", 1);
        Future<Void> releasing = other.starts(() -> hold.release());
        Eventually.isTrue(
                "it is refused",
                () -> server.info("commandstats")
                        .toLowerCase()
                        .matches("(?s).*lock.release:[^\\n]*rejected_calls=[1-9].*"));
        server.ask("REPLICAOF", "NO", "ONE");
        assertThrows(IllegalMonitorStateException.class, () -> Other.result(releasing));
    }

    /** It closes nothing by itself, and another one may be the primary. */
    @ParameterizedTest
    @EnumSource(names = {"JEDIS", "JEDIS_POOL", "LETTUCE"})
    void aServerThatWasDemotedIsLeft(Way way) {
        Way.Opened brief = by(way, patient.withReconnect(Duration.ZERO));
        server.ask("REPLICAOF", "127.0.0.1", 1);
        assertSays(RuntimeException.class, "READONLY", () -> brief.take("a"));
        Eventually.isTrue(
                "no connection that was refused is there",
                () -> !server.ask("CLIENT", "LIST").toString().contains("cmd=lock"));
    }

    /** As the hosts of Docker have one. */
    @ParameterizedTest
    @CsvSource({
        "redis://me:secret@no_host.invalid:1, no_host.invalid:1",
        "redis://nowhere.invalid/3, nowhere.invalid:6379"
    })
    void aHostMayHaveAnUnderscoreAndNoPort(String url, String address) {
        LockOptions brief = options.withReconnect(Duration.ZERO);
        RedisLock far = closing(RedisLockClient.connect(url, brief)).lock("a");
        assertSays(RuntimeException.class, "connect to " + address, far::tryLock);
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "redis://me:secret@:1",
                "redis://me:secret@ho st:1",
                "redis://me:secret @host:1",
                "redis://me:secret@host:port",
                "me:secret@host:1"
            })
    void anAddressThatIsNoneIsRefusedWithoutItsPassword(String url) {
        IllegalArgumentException refused = assertThrows(
                IllegalArgumentException.class, () -> RedisLockClient.connect(url, options));
        assertFalse(refused.toString().contains("secret"), refused.toString());
        assertNull(refused.getCause());
    }

    @Test
    void whatTheApplicationGaveStaysOpenAndMayBeUnfitToLinger() {
        assertSays(
                IllegalArgumentException.class, "linger", () -> by(Way.JEDIS_UNIFIED, lingers));
        JedisPool pool = closing(new JedisPool(server.url()));
        RedisLockClient over = JedisLocks.over(pool, options);
        assertTrue(over.lock("a").tryLock());
        over.close();
        assertEquals("PONG", pool.getResource().ping());
    }
}
