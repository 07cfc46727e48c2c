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
import java.util.stream.Stream;

/** The same by every way, with the pool and the settings that it has by default. */
class DriversTest extends ServerTest {
    private static final int THREADS = 20;

    private final LockOptions patient = LockOptions.defaults().withOnLost(lost::add);

    @ParameterizedTest
    @EnumSource(mode = EnumSource.Mode.EXCLUDE, names = "LETTUCE_FUTURES")
    void twentyThreadsThatWaitDoNotStallTheOwner(Way way) throws Exception {
        try (Way.Opened opened = way.open(server.url(), patient)) {
            RedisLock lock = opened.locks.lock("a");
            lock.lock();
            AtomicInteger inside = new AtomicInteger();
            List<Other> others = Stream.generate(Other::new).limit(THREADS).toList();
            List<Future<Void>> ends = others.stream()
                    .map(waiter -> waiter.starts(() -> {
                        lock.lock();
                        assertEquals(1, inside.incrementAndGet());
                        inside.decrementAndGet();
                        lock.unlock();
                    }))
                    .toList();
            awaitWaiters("a", THREADS);
            lock.unlock();
            ends.forEach(Other::result);
            others.forEach(Other::close);
        }
        assertNull(lost.poll());
    }

    @ParameterizedTest
    @EnumSource(mode = EnumSource.Mode.EXCLUDE, names = "LETTUCE_FUTURES")
    void anInterruptedWaiterLeavesNothing(Way way) throws Exception {
        // A pool of the application's is read until the end of a slice.
        LockOptions brief = patient.withSlice(Duration.ofMillis(200));
        try (Way.Opened opened = way.open(server.url(), brief)) {
            RedisLock lock = opened.locks.lock("a");
            lock.lock();
            interrupt(awaitWaiter(lock::lockInterruptibly));
            awaitWaiters("a", 0);
            lock.unlock();
            assertTrue(lock.tryLock());
            lock.unlock();
        }
    }

    @ParameterizedTest
    @EnumSource
    void aCommandAnswersInTermsOfNoDriver(Way way) throws Exception {
        try (Way.Opened opened = way.open(server.url(), patient)) {
            Held hold = opened.take("a");
            assertEquals("OK", hold.exec("SET", "x", 41));
            assertEquals(42L, hold.exec("INCR", "x"));
            assertEquals(List.of("42"), hold.exec("MGET", "x".getBytes()));
            assertNull(hold.exec("GET", "y"));
            String refused = assertThrows(
                            RuntimeException.class, () -> hold.exec("LPUSH", "x", "1"))
                    .toString();
            assertTrue(refused.contains("WRONGTYPE"), refused);
            assertTrue(hold.isHeld());
            server.ask("DEL", "a");
            assertThrows(IllegalMonitorStateException.class, () -> hold.exec("INCR", "x"));
            assertFalse(hold.isHeld());
            assertEquals(hold.fence(), awaitLost().fence());
            Held next = opened.take("a");
            server.ask("DEL", "a");
            assertFalse(next.check() || next.isHeld());
            assertEquals(next.fence(), awaitLost().fence());
        }
    }

    @ParameterizedTest
    @EnumSource(mode = EnumSource.Mode.EXCLUDE, names = "JEDIS_UNIFIED")
    void aHoldThatLingersEndsSoonAfterItsClient(Way way) throws Exception {
        try (FaultyProxy proxy = new FaultyProxy(server.port());
                Way.Opened opened =
                        way.open(proxy.url(), patient.withLinger(Duration.ofSeconds(1)))) {
            locks.lock("a").lock();
            Future<Void> waiting = awaitWaiter( // Granted while it waits.
                    () -> opened.take(Way.Kind.LOCK, List.of("a"), 20_000, -1));
            locks.lock("a").unlock();
            Other.result(waiting);
            assertTrue(server.leftMs("a") > 20_000);
            proxy.shut();
            Eventually.isTrue("it is free", () -> !server.isLocked("a"));
        }
    }

    @ParameterizedTest
    @EnumSource(mode = EnumSource.Mode.EXCLUDE, names = "JEDIS_UNIFIED")
    void aHoldThatLingersIsBoundToTheNextConnection(Way way) throws Exception {
        try (FaultyProxy proxy = new FaultyProxy(server.port());
                Way.Opened opened =
                        way.open(proxy.url(), patient.withLinger(Duration.ofSeconds(5)))) {
            Held write = opened.take("a");
            Held read = opened.take(Way.Kind.READ, List.of("b"), 0, -1);
            for (int turn = 0; turn < 2; turn++) {
                server.ask("CONFIG", "RESETSTAT");
                proxy.cut(100);
                Eventually.isTrue("its end came forward", () -> server.leftMs("a") < 5_001);
                for (String name : List.of("a", "b")) {
                    Eventually.isTrue("it has its ttl", () -> server.leftMs(name) > 20_000);
                }
                Eventually.isTrue(
                        "both are bound",
                        () -> server.calls("lock.acquire") > 0 && server.calls("rwlock.rlock") > 0);
            }
            assertTrue(write.check() && read.check());
        }
        assertNull(lost.poll());
    }

    @ParameterizedTest
    @EnumSource(names = {"JEDIS", "JEDIS_POOL", "LETTUCE"})
    void aConversionOnANewConnectionStays(Way way) throws Exception {
        try (FaultyProxy proxy = new FaultyProxy(server.port());
                Way.Opened opened = way.open(
                        proxy.url(),
                        patient.withTtl(Duration.ofSeconds(6))
                                .withLinger(Duration.ofSeconds(5)))) {
            RedisReadWriteLock lock = opened.locks.readWriteLock("a");
            lock.readLock().lock();
            for (boolean writes : new boolean[] {true, false}) {
                server.ask("CONFIG", "RESETSTAT");
                proxy.replyDelayMs = 200; // Binds it again while its answer is on the way.
                proxy.cut();
                if (writes) {
                    assertTrue(lock.writeLock().tryLock());
                } else {
                    lock.writeLock().unlock();
                }
                proxy.replyDelayMs = 0;
                Eventually.isTrue("it is renewed", () -> server.calls("lock.renew") > 0);
                assertEquals(writes, lock.writeLock().isLocked());
            }
            lock.readLock().unlock();
        }
        assertNull(lost.poll());
    }

    @ParameterizedTest
    @EnumSource(names = {"JEDIS", "LETTUCE", "LETTUCE_FUTURES"})
    void aHoldThatCannotBeBoundIsNotLost(Way way) throws Exception {
        LockOptions lingers =
                patient.withTtl(Duration.ofSeconds(6)).withLinger(Duration.ofSeconds(5));
        try (FaultyProxy proxy = new FaultyProxy(server.port());
                Way.Opened opened = way.open(proxy.url(), lingers)) {
            Held write = opened.take("a");
            String token = server.holders("a").get(0);
            server.ask("RWLOCK.RLOCK", "a", token, 6_000);
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
        }
        assertNull(lost.poll());
    }

    @ParameterizedTest
    @EnumSource(names = {"JEDIS", "JEDIS_POOL", "LETTUCE_CLIENT", "LETTUCE_FUTURES"})
    void aGrantAfterAWaitIsBoundBeforeTheConnectionOfItsWaitEnds(Way way) {
        try (Way.Opened opened =
                        way.open(server.url(), patient.withLinger(Duration.ofSeconds(1)));
                Other next = new Other()) {
            RedisHold held = locks.lock("a").tryAcquire();
            Future<Held> first =
                    other.starts(() -> opened.take(Way.Kind.LOCK, List.of("a"), 60_000, -1));
            awaitWaiters("a", 1);
            Future<RedisHold> second = next.starts(() -> locks.lock("a").acquire());
            awaitWaiters("a", 2);
            held.release();
            Held hold = Other.result(first);
            assertTrue(hold.check());
            hold.release();
            Other.result(second).release();
        }
        assertNull(lost.poll());
    }

    /** After a long wait it is begun anew, and the answer to that comes late. */
    @ParameterizedTest
    @EnumSource(mode = EnumSource.Mode.EXCLUDE, names = "LETTUCE_CONNECTION") // No wait is long.
    void aLeaseThatIsOverWhenItIsHeardOfIsNoGrant(Way way) throws Exception {
        try (FaultyProxy proxy = new FaultyProxy(server.port());
                Way.Opened opened = way.open(proxy.url(), patient)) {
            RedisHold held = locks.lock("a").tryAcquire();
            Future<Held> waiting =
                    other.starts(() -> opened.take(Way.Kind.LOCK, List.of("a"), 20_000, 500));
            awaitWaiters("a", 1);
            Eventually.pause(60);
            proxy.withheld = "LOCK.RENEW";
            held.release();
            RedisHold next = locks.lock("a").acquire(); // After that lease.
            proxy.withheld = null;
            Eventually.isTrue(
                    "it waits again", () -> waiting.isDone() || server.waiting("a") == 1);
            assertFalse(waiting.isDone());
            next.release();
            assertNotNull(Other.result(waiting));
        }
    }

    @ParameterizedTest
    @EnumSource
    void aReleaseWhoseAnswerIsLostHasReleased(Way way) throws Exception {
        try (FaultyProxy proxy = new FaultyProxy(server.port());
                Way.Opened opened = way.open(proxy.url(), patient)) {
            Held hold = opened.take("a");
            proxy.silent = true;
            Future<Void> releasing = other.starts(() -> hold.release());
            Eventually.isTrue("it is released", () -> !server.isLocked("a"));
            proxy.silent = false;
            proxy.cut();
            Other.result(releasing);
        }
    }

    @ParameterizedTest
    @EnumSource(mode = EnumSource.Mode.EXCLUDE, names = "LETTUCE_FUTURES")
    void aReleaseThatWasOnlyRefusedHasReleasedNothing(Way way) throws Exception {
        try (Way.Opened opened = way.open(server.url(), patient)) {
            Held hold = opened.take("a");
            server.ask("DEL", "a");
            server.ask("CONFIG", "RESETSTAT");
            server.ask("REPLICAOF", "127.0.0.1", 1);
            Future<Void> releasing = other.starts(() -> hold.release());
            try {
                Eventually.isTrue(
                        "it is refused",
                        () -> server.info("commandstats")
                                .toLowerCase()
                                .matches("(?s).*lock.release:[^\\n]*rejected_calls=[1-9].*"));
            } finally {
                server.ask("REPLICAOF", "NO", "ONE");
            }
            assertThrows(IllegalMonitorStateException.class, () -> Other.result(releasing));
        }
    }

    /** It closes nothing by itself, and another one may be the primary. */
    @ParameterizedTest
    @EnumSource(names = {"JEDIS", "JEDIS_POOL", "LETTUCE"})
    void aServerThatWasDemotedIsLeft(Way way) throws Exception {
        LockOptions brief = patient.withReconnect(Duration.ZERO);
        try (Way.Opened opened = way.open(server.url(), brief)) {
            server.ask("REPLICAOF", "127.0.0.1", 1);
            try {
                RuntimeException refused =
                        assertThrows(RuntimeException.class, opened.locks.lock("a")::tryLock);
                assertTrue(refused.getMessage().contains("READONLY"), refused.toString());
                Eventually.isTrue(
                        "no connection that was refused is there",
                        () -> !server.ask("CLIENT", "LIST").toString().contains("cmd=lock"));
            } finally {
                server.ask("REPLICAOF", "NO", "ONE");
            }
        }
    }

    @Test
    void aPoolThatHidesItsConnectionsCannotLinger() throws Exception {
        LockOptions lingers = options.withLinger(Duration.ofSeconds(1));
        assertThrows(
                IllegalArgumentException.class,
                () -> Way.JEDIS_UNIFIED.open(server.url(), lingers));
    }

    /** As the hosts of Docker have one. */
    @ParameterizedTest
    @CsvSource({
        "redis://me:secret@no_host.invalid:1, no_host.invalid:1",
        "redis://nowhere.invalid/3, nowhere.invalid:6379"
    })
    void aHostMayHaveAnUnderscoreAndNoPort(String url, String address) {
        LockOptions brief = options.withReconnect(Duration.ZERO);
        try (RedisLockClient far = RedisLockClient.connect(url, brief)) {
            String failed = assertThrows(RuntimeException.class, far.lock("a")::tryLock).toString();
            assertTrue(failed.contains("connect to " + address), failed);
        }
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
    void whatTheApplicationGaveStaysOpen() {
        try (JedisPool pool = new JedisPool(server.url())) {
            RedisLockClient over = JedisLocks.over(pool, options);
            assertTrue(over.lock("a").tryLock());
            over.close();
            assertEquals("PONG", pool.getResource().ping());
        }
    }
}
