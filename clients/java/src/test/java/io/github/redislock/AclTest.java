package io.github.redislock;

import static org.junit.jupiter.api.Assertions.*;

import io.github.redislock.testing.Eventually;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;

/** What a user needs the rights to do. */
class AclTest extends ServerTest {
    /** The one of {@code redis.conf.example}. */
    private static final String WORKER =
            "resetchannels ~jobs:* -@all +lock.acquire +rwlock.wlock +rwlock.rlock +lock.renew"
                    + " +lock.release +ping";

    private String urlOf(String rights) {
        server.ask((Object[]) ("ACL SETUSER worker reset on >secret " + rights).split(" "));
        return server.url().replace("//", "//worker:secret@");
    }

    @ParameterizedTest
    @EnumSource(names = {"JEDIS", "JEDIS_UNIFIED", "LETTUCE_CLIENT"})
    void aWorkerLocksAndWaits(Way way) throws Exception {
        LockOptions brief = options.withSlice(Duration.ofMillis(200));
        try (Way.Opened opened = way.open(urlOf(WORKER), brief)) {
            RedisLock lock = opened.locks.lock("jobs:1");
            lock.lock();
            lock.lock();
            Future<Boolean> waiting = other.starts(() -> lock.tryLock(20, TimeUnit.SECONDS));
            awaitWaiters("jobs:1", 1);
            Eventually.pause(TTL_MS / 2); // Renewed.
            assertTrue(lock.renew(Duration.ofSeconds(5)));
            lock.unlock();
            lock.unlock();
            assertTrue(Other.result(waiting));
            other.does(() -> lock.unlock());
            lock.lock();
            Future<Void> interrupted = other.starts(() -> lock.lockInterruptibly());
            awaitWaiters("jobs:1", 1);
            interrupt(interrupted);
            awaitWaiters("jobs:1", 0);
            lock.unlock();

            RedisReadWriteLock both = opened.locks.readWriteLock("jobs:2");
            both.readLock().lock();
            both.writeLock().lock();
            both.readLock().unlock();
            both.writeLock().unlock();
            try (RedisHold permit = opened.locks.semaphore("jobs:3", 2).acquire()) {
                assertTrue(permit.isHeld());
            }
            Duration most = Duration.ofSeconds(20);
            assertTrue(opened.locks.runOnce("jobs:4", most, Duration.ofSeconds(9), hold -> {}));
            assertTrue(server.isLocked("jobs:4"));

            // A lock of another kind: its ttl is not known.
            server.ask("SET", "jobs:5", "old", "PX", 300);
            assertTrue(opened.locks.lock("jobs:5").tryLock(20, TimeUnit.SECONDS));
            RuntimeException refused = assertThrows(
                    RuntimeException.class, () -> opened.locks.lock("else").lock());
            assertTrue(refused.getMessage().contains("NOPERM"), refused.getMessage());
        }
        assertTrue(lost.isEmpty());
    }

    @ParameterizedTest
    @EnumSource(names = {"JEDIS", "JEDIS_POOL", "LETTUCE_CLIENT"})
    void aWorkersHoldsLinger(Way way) {
        LockOptions lingers = LockOptions.defaults().withLinger(Duration.ofSeconds(5));
        try (Way.Opened opened = way.open(urlOf(WORKER), lingers)) {
            RedisLock lock = opened.locks.lock("jobs:1");
            lock.lock();
            server.cutConnections();
            Eventually.isTrue("its end came forward", () -> server.leftMs("jobs:1") < 5_001);
            Eventually.isTrue("it has its ttl", () -> server.leftMs("jobs:1") > 20_000);
            lock.unlock();
        }
    }

    @ParameterizedTest
    @EnumSource(mode = EnumSource.Mode.EXCLUDE, names = "LETTUCE_FUTURES")
    void everyOtherOperationNeedsOneRightMore(Way way) {
        String more = WORKER + " +lock.macquire +lock.check +lock.exec +incr +lock.info +pttl +del";
        try (Way.Opened opened = way.open(urlOf(more), options)) {
            RedisLock lock = opened.locks.lock("jobs:{1}");
            lock.lock();
            assertTrue(lock.check() && lock.isLocked() && lock.remainTimeToLive() > 0);
            assertEquals(1L, lock.exec("INCR", "jobs:n{1}"));
            assertEquals(1, opened.locks.semaphore("jobs:{2}", 1).availablePermits());
            lock.unlock();
            RedisMultiLock several = opened.locks.multiLock(lock, opened.locks.lock("jobs:2{1}"));
            several.lock();
            several.unlock();
            assertFalse(lock.forceUnlock());
        }
    }

    @Test
    void waitingWithoutThreadsNeedsTheChannel() {
        String url = urlOf(WORKER + " &redis-lock:* +subscribe");
        Duration most = Duration.ofSeconds(20);
        try (Way.Opened mine = Way.LETTUCE_FUTURES.open(url, LockOptions.defaults())) {
            Held hold = mine.take("jobs:1");
            List<String> name = List.of("jobs:1");
            Future<Held> waiting =
                    other.starts(() -> mine.take(Way.Kind.LOCK, name, 20_000, -1));
            awaitWaiters("jobs:1", 1);
            assertNull(mine.take(Way.Kind.READ, name, 100, -1));
            assertTrue(hold.renew(Duration.ofSeconds(30)));
            hold.release();
            Other.result(waiting).release();
            for (boolean runs : new boolean[] {true, false}) {
                assertEquals(runs, mine.runOnce("jobs:2", most, Duration.ofSeconds(9), job -> {}));
            }
            assertTrue(server.leftMs("jobs:2") > 5_000);
        }
    }
}
