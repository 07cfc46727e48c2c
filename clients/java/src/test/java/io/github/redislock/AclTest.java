package io.github.redislock;

import static org.junit.jupiter.api.Assertions.*;

import io.github.redislock.testing.Eventually;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

import java.time.Duration;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;

/** What a user needs the rights to do. */
class AclTest extends ServerTest {
    /** The one of {@code redis.conf.example}. */
    private static final String WORKER =
            "resetchannels ~jobs:* -@all +lock.acquire +rwlock.wlock +rwlock.rlock +lock.renew"
                    + " +lock.release +ping";

    private static final Duration LEAST = Duration.ofSeconds(9);

    private Way.Opened as(String rights, Way way, LockOptions options) {
        server.ask((Object[]) ("ACL SETUSER worker reset on >secret " + rights).split(" "));
        return closing(way.open(server.url().replace("//", "//worker:secret@"), options));
    }

    @ParameterizedTest
    @EnumSource(names = {"JEDIS", "JEDIS_UNIFIED", "JEDIS_POOL", "LETTUCE_CLIENT"})
    void aWorkerLocksAndWaitsAndLingers(Way way) throws Exception {
        boolean lingers = way != Way.JEDIS_UNIFIED;
        RedisLockClient mine =
                as(WORKER, way, lingers ? patient.withLinger(MINUTE) : patient).locks();
        RedisLock lock = mine.lock("jobs:1");
        lock.lock();
        lock.lock();
        Future<Boolean> waiting = other.starts(() -> lock.tryLock(20, TimeUnit.SECONDS));
        awaitWaiters("jobs:1", 1);
        server.cutConnections();
        Eventually.isTrue(
                "it is bound to the next", () -> !lingers || server.calls("lock.renew") > 0);
        assertTrue(lock.renew(Duration.ofSeconds(20)));
        lock.unlock();
        lock.unlock();
        assertTrue(Other.result(waiting));
        other.does(() -> lock.unlock());
        RedisReadWriteLock both = mine.readWriteLock("jobs:2");
        both.readLock().lock();
        both.writeLock().lock();
        both.readLock().unlock();
        both.writeLock().unlock();
        mine.semaphore("jobs:3", 2).acquire().release();
        assertTrue(mine.runOnce("jobs:4", MINUTE, LEAST, hold -> {}));
        assertTrue(server.isLocked("jobs:4"));

        // A lock of another kind: its ttl is not known.
        server.ask("SET", "jobs:5", "old", "PX", 300);
        assertTrue(mine.lock("jobs:5").tryLock(20, TimeUnit.SECONDS));
        assertSays(RuntimeException.class, "NOPERM", mine.lock("else")::lock);
        assertNull(lost.poll());
    }

    @ParameterizedTest
    @EnumSource(mode = EnumSource.Mode.EXCLUDE, names = "LETTUCE_FUTURES")
    void everyOtherOperationNeedsOneRightMore(Way way) {
        String more = WORKER + " +lock.macquire +lock.check +lock.exec +incr +lock.info +pttl +del";
        RedisLockClient mine = as(more, way, options).locks();
        RedisLock lock = mine.lock("jobs:{1}");
        lock.lock();
        assertTrue(lock.check() && lock.isLocked() && lock.remainTimeToLive() > 0);
        assertEquals(1L, lock.exec("INCR", "jobs:n{1}"));
        assertEquals(1, mine.semaphore("jobs:{2}", 1).availablePermits());
        lock.unlock();
        RedisMultiLock several = mine.multiLock(lock, mine.lock("jobs:2{1}"));
        several.lock();
        several.unlock();
        assertFalse(lock.forceUnlock());
    }

    @Test
    void waitingWithoutThreadsNeedsTheChannel() {
        Way.Opened mine = as(WORKER + " &redis-lock:* +subscribe", Way.LETTUCE_FUTURES, patient);
        RedisHold hold = mine.take("jobs:1");
        Future<RedisHold> waiting = other.starts(() -> mine.awaits("jobs:1", -1));
        awaitWaiters("jobs:1", 1);
        assertTrue(hold.renew(Duration.ofSeconds(30)));
        hold.release();
        Other.result(waiting).release();
        assertTrue(mine.runOnce("jobs:2", MINUTE, LEAST, job -> {}));
        assertTrue(server.leftMs("jobs:2") > 5_000);
    }
}
