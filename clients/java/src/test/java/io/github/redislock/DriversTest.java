package io.github.redislock;

import static org.junit.jupiter.api.Assertions.*;

import io.github.redislock.testing.Eventually;

import io.lettuce.core.RedisException;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.*;

import redis.clients.jedis.*;
import redis.clients.jedis.exceptions.*;
import redis.clients.jedis.providers.PooledConnectionProvider;
import redis.clients.jedis.util.Pool;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.*;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.IntStream;
import java.util.stream.Stream;

/**
 * The same by every way, with the pool and the settings that it has by default, and what users met:
 * pools, executors, orphans, slow listeners, releases that fail.
 */
class DriversTest extends ServerTest {
    private final LockOptions lingers =
            patient.withTtl(Duration.ofSeconds(6)).withLinger(Duration.ofSeconds(5));

    @ParameterizedTest
    @EnumSource(mode = EnumSource.Mode.EXCLUDE, names = "LETTUCE_FUTURES")
    void twentyThreadsThatWaitDoNotStallTheOwner(Way way) {
        RedisLock lock = by(way, patient).locks().lock("a");
        lock.lock();
        AtomicInteger inside = new AtomicInteger();
        Other.Action turn = () -> {
            lock.lock();
            assertEquals(1, inside.incrementAndGet());
            inside.decrementAndGet();
            lock.unlock();
        };
        List<Future<Void>> ends =
                Stream.generate(Other::new).limit(20).map(one -> one.starts(turn)).toList();
        awaitWaiters("a", 20);
        lock.unlock();
        ends.forEach(Other::result);
        assertNull(lost.poll());
    }

    @ParameterizedTest
    @EnumSource(names = {"JEDIS", "JEDIS_POOL", "LETTUCE"})
    void aConversionOnANewConnectionStays(Way way) {
        RedisReadWriteLock lock = by(way, lingers).locks().readWriteLock("a");
        lock.readLock().lock();
        for (boolean writes : new boolean[] {true, false}) {
            proxy.replyDelayMs = 200; // Binds it again while its answer is on the way.
            proxy.cut(0);
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

    /** As JedisPooled and RedisClient, of different versions. */
    public static final class Pooled extends UnifiedJedis {
        private final PooledConnectionProvider provider;

        Pooled(PooledConnectionProvider provider) {
            super(provider, 1, Duration.ofSeconds(2));
            this.provider = provider;
        }

        public Pool<Connection> getPool() {
            return provider.getPool();
        }
    }

    @Test
    void anExhaustedPoolStopsNoLockNoRenewalAndNoUnlock() {
        JedisPool pool = closing(new JedisPool("127.0.0.1", server.port()));
        Pooled pooled = closing(new Pooled(new PooledConnectionProvider(
                new HostAndPort("127.0.0.1", server.port()))));
        pool.setMaxTotal(1);
        pooled.getPool().setMaxTotal(1);
        Jedis one = closing(pool.getResource());
        Connection other = closing(pooled.getPool().getResource());
        for (RedisLockClient over :
                List.of(JedisLocks.over(pool, options), JedisLocks.over(pooled, options))) {
            RedisLock lock = closing(over).lock("a");
            lock.lock();
            awaitCalls("lock.renew", 1);
            lock.unlock();
        }
        assertTrue(one.ping().equals("PONG") && other.ping());
        assertNull(lost.poll());
        // What Jedis says of a pool that could not take a broken connection back.
        JedisException broken = new JedisException("broken", new JedisConnectionException("cut"));
        assertTrue(new UnifiedJedisDriver(null, 1).isOutOfReach(broken));
    }

    @ParameterizedTest
    @EnumSource(names = {"JEDIS", "LETTUCE"})
    void anUnlockThatIsRefusedCanBeRepeatedAndUntilThenItIsRenewed(Way way) {
        RedisLock lock = by(way, options).locks().lock("a");
        lock.lock();
        long fence = lock.fence();
        server.ask("ACL", "SETUSER", "default", "-lock.release");
        assertSays(RuntimeException.class, "NOPERM", lock::unlock);
        assertEquals(fence, lock.fence());
        assertTrue(lock.isHeldByCurrentThread());
        server.ask("ACL", "SETUSER", "default", "+lock.release");
        awaitCalls("lock.renew", 2);
        lock.unlock();
        assertFalse(server.isLocked("a") || lock.isHeldByCurrentThread());
    }

    @Test
    void oneSlowListenerDelaysNoOtherNews() throws Exception {
        CountDownLatch slow = new CountDownLatch(1);
        RedisLockClient client = behind(options.withOnLost(news -> {
            if (news.name().equals("a0")) {
                Other.quietly(() -> slow.await());
            }
            lost.add(news);
        }));
        for (int number = 0; number < 5; number++) {
            client.lock("a" + number).lock();
            server.ask("DEL", "a" + number);
        }
        for (int number = 1; number < 5; number++) {
            assertNotEquals("a0", awaitLost().name());
        }
        slow.countDown();
        assertEquals("a0", awaitLost().name());
    }

    @Test
    void aLossIsLoggedIfNobodyListens() {
        LockOptions silent = LockOptions.defaults().withTtl(Duration.ofSeconds(1));
        List<String> said = warnings();
        behind(silent).lock("a").lock();
        server.ask("DEL", "a");
        Eventually.isTrue("it is said", () -> !said.isEmpty());
        assertTrue(said.get(0).contains("The lock a was lost"), said.get(0));
    }

    /** One continuation blocks, and neither a free lock nor the news of a loss waits for it. */
    @ParameterizedTest
    @ValueSource(strings = {"mine", "redis-lock-callback"})
    void continuationsRunOnTheGivenExecutorOrOnThreadsOfTheirOwn(String name) throws Exception {
        CountDownLatch blocks = new CountDownLatch(1);
        ExecutorService mine = Executors.newFixedThreadPool(4, Engine.daemons("mine"));
        LockOptions given = name.equals("mine") ? options.withExecutor(mine) : options;
        Way.Opened opened = by(Way.LETTUCE_FUTURES, given);
        LettuceLockClient client = opened.futures();
        AsyncHold lostSoon = Other.result(client.lock("lost").lock());
        List<String> threads = new CopyOnWriteArrayList<>();
        for (int number = 0; number < 2; number++) {
            client.lock("blocking" + number).lock().thenAccept(hold -> {
                threads.add(Thread.currentThread().getName());
                Other.quietly(() -> blocks.await());
            });
        }
        Eventually.isTrue("both block", () -> threads.size() == 2);
        assertEquals(List.of(name, name), threads);
        assertTrue(Other.result(Other.result(client.lock("free").lock()).unlock()));
        assertFalse(lostSoon.lost().isDone());
        server.ask("DEL", "lost");
        assertNull(awaitLost().owner());
        assertEquals(Keeper.GONE, Other.result(lostSoon.lost()));
        blocks.countDown();
        mine.shutdown(); // And then on the client's own, too.
        assertTrue(Other.result(client.lock("free").lock()).isHeld());
        Other.quietly(opened.all().get(1)::close); // Too early: that is Lettuce's.
        Exception told = assertThrows(
                RuntimeException.class, () -> Other.result(client.lock("b").tryLock()));
        // Lettuce 6.3 says it in its own way.
        assertTrue(told instanceof IllegalStateException || told instanceof RedisException);
    }

    @Test
    void whatWorksWithAHoldLeavesNothingBehind() throws Exception {
        AsyncLock lock = by(Way.LETTUCE_FUTURES, patient).futures().lock("a");
        CompletableFuture<Integer> working =
                lock.with(hold -> CompletableFuture.completedFuture(1));
        assertEquals(1, Other.result(working));
        assertFalse(server.isLocked("a"));
        CompletableFuture<Integer> failing = lock.with(hold -> {
            throw new IllegalStateException("the work");
        });
        assertThrows(IllegalStateException.class, () -> Other.result(failing));
        assertFalse(server.isLocked("a"));
        CompletableFuture<Integer> losing = lock.with(hold -> {
            server.ask("DEL", "a");
            return CompletableFuture.completedFuture(1);
        });
        assertThrows(IllegalMonitorStateException.class, () -> Other.result(losing));

        RedisHold held = locks.lock("a").tryAcquire(0, 60, TimeUnit.SECONDS);
        CompletableFuture<Integer> waiting =
                lock.with(hold -> CompletableFuture.completedFuture(1));
        awaitWaiters("a", 1);
        waiting.orTimeout(1, TimeUnit.MILLISECONDS);
        awaitWaiters("a", 0);
        held.release();
        assertFalse(server.isLocked("a"));

        CompletableFuture<Integer> work = new CompletableFuture<>();
        CompletableFuture<Integer> late = lock.with(hold -> work);
        Eventually.isTrue("it works", () -> server.isLocked("a"));
        late.cancel(false);
        work.complete(1);
        awaitFree("a");
    }

    @Test
    void whatCannotBeGivenBackAfterTheWorkIsRenewedNoMore() {
        LockOptions nine = patient.withTtl(Duration.ofSeconds(9));
        CompletableFuture<Integer> work = new CompletableFuture<>();
        AsyncLock lock = by(Way.LETTUCE_FUTURES, nine).futures().lock("a");
        CompletableFuture<Integer> end = lock.with(hold -> work);
        RedisHold held = by(Way.JEDIS, nine).take("b");
        Eventually.isTrue("it works", () -> server.isLocked("a"));
        proxy.cut(-1);
        work.complete(1);
        assertThrows(RuntimeException.class, held::close);
        assertThrows(RuntimeException.class, () -> Other.result(end));
        proxy.connectDelayMs = 0;
        awaitFree("a");
        awaitFree("b");
    }

    @ParameterizedTest
    @EnumSource
    void anyBytesComeBackAsTheyWere(Way way) throws Exception {
        byte[] all = new byte[256];
        IntStream.range(0, all.length).forEach(each -> all[each] = (byte) each);
        Way.Opened opened = by(way, patient);
        assertArrayEquals(all, opened.once("k", Once.bytes(), () -> all));
        assertArrayEquals(all, opened.once("k", Once.bytes(), () -> new byte[0]));
    }

    @ParameterizedTest
    @EnumSource(names = {"JEDIS", "LETTUCE_FUTURES"})
    void anInterruptOrACancelGivesThePlaceInTheQueueForAValueUp(Way way) {
        server.ask("LOCK.ACQUIRE", "{k}:once", "maker", 600_000);
        Once<String> text = Once.text().withPatience(HOUR);
        Way.Opened opened = by(way, patient);
        Future<String> waiting = way == Way.JEDIS
                ? other.starts(() -> opened.once("k", text, () -> "never"))
                : opened.futures().once("k", text, CompletableFuture::new);
        awaitWaiters("{k}:once", 1);
        if (way == Way.JEDIS) {
            interrupt(waiting);
        } else {
            waiting.cancel(false);
        }
        awaitWaiters("{k}:once", 0);
    }

    /** All that is left of a value is early for it, or nothing. */
    @Test
    void xfetchDrawsByHowLongTheMakingTakes() throws Exception {
        double mean = IntStream.range(0, 10_000)
                .mapToLong(each -> Once.xfetch(Duration.ofMillis(1_000), 2).get().toMillis())
                .average()
                .getAsDouble();
        assertTrue(mean > 1_800 && mean < 2_200, "it is " + mean);
        server.ask("SET", "k", "old", "PX", 20_000);
        Once<String> eager = Once.text().withEarly(Once.xfetch(Duration.ofDays(1), 1_000));
        assertEquals("new", locks.once("k", eager, () -> "new"));
        assertEquals("new", locks.once("k", eager, () -> "soon")); // Not in its first half.
    }
}
