package io.github.redislock;

import static org.junit.jupiter.api.Assertions.*;

import io.github.redislock.testing.Eventually;

import org.junit.jupiter.api.*;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import java.time.Duration;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;

/** A renewal that is under way while its owner sends something else, by another connection. */
@Timeout(value = 60, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class OvertakingTest extends ServerTest {
    private static final Duration LEAST = Duration.ofSeconds(30);
    private static final String RENEW = "LOCK.RENEW";

    private final LockOptions lingering =
            LockOptions.defaults().withTtl(Duration.ofMinutes(10)).withLinger(LEAST);
    private CountDownLatch answered;
    private HookedDriver wire;
    private RedisLockClient hooked;

    private void open(LockOptions chosen) {
        answered = new CountDownLatch(1);
        wire = new HookedDriver(server.url(), chosen);
        hooked = SyncClient.over(wire, chosen);
    }

    @AfterEach
    void close() {
        hooked.close();
    }

    /** Has the next renewal come to the server after this thread's next command of that name. */
    private void holdARenewalBackFor(String overtaking) {
        CountDownLatch underWay = new CountDownLatch(1);
        Thread owner = Thread.currentThread();
        AtomicBoolean overtaken = new AtomicBoolean();
        wire.before = command -> {
            if (command.equals(RENEW) && Thread.currentThread() != owner) {
                wire.before = next -> {};
                underWay.countDown();
                Eventually.isTrue(
                        "the owner is first, or waits",
                        () -> overtaken.get() || owner.getState() == Thread.State.WAITING);
            }
        };
        wire.after = command -> {
            if (Thread.currentThread() == owner) {
                overtaken.set(overtaken.get() || command.equals(overtaking));
            } else if (command.equals(RENEW)) {
                answered.countDown();
            }
        };
        wire.reconnect();
        await(underWay);
    }

    private static void await(CountDownLatch latch) {
        Eventually.isTrue("it has come", () -> latch.getCount() == 0);
    }

    @ParameterizedTest
    @ValueSource(strings = {"unlock", "release", "releaseIn", "runOnce"})
    void aReleaseKeepsItsLeastTime(String method) throws Exception {
        open(lingering);
        RedisLock lock = hooked.lock("a");
        switch (method) {
            case "unlock" -> {
                lock.lock();
                holdARenewalBackFor("LOCK.RELEASE");
                lock.unlock(LEAST);
            }
            case "release" -> {
                RedisHold hold = lock.acquire();
                holdARenewalBackFor("LOCK.RELEASE");
                hold.release(LEAST);
            }
            case "releaseIn" -> {
                RedisHold hold = lock.acquire();
                holdARenewalBackFor("LOCK.RELEASE");
                hold.releaseIn(LEAST);
            }
            default ->
                hooked.runOnce("a", Duration.ofHours(1), LEAST, hold -> {
                    holdARenewalBackFor("LOCK.RELEASE");
                });
        }
        await(answered);
        long leftMs = server.leftMs("a");
        assertTrue(leftMs > 0 && leftMs < 60_000, "and not for minutes: " + leftMs);
    }

    @Test
    void aNestedLockKeepsItsLongerLease() {
        open(lingering);
        RedisLock lock = hooked.lock("a");
        lock.lock(30, TimeUnit.MINUTES);
        holdARenewalBackFor(RENEW);
        lock.lock(1, TimeUnit.HOURS);
        await(answered);
        assertTrue(server.leftMs("a") > 3_500_000);
        lock.unlock();
        lock.unlock();
    }

    /** Its answer comes after the end of the lease that was, and another one has begun. */
    @Test
    void aLateRenewalDoesNotReleaseWhatIsHeld() {
        open(options.withTtl(Duration.ofSeconds(9)));
        RedisReadWriteLock lock = hooked.readWriteLock("a");
        assertTrue(other.does(() -> locks.readWriteLock("a").readLock().tryLock()));
        lock.readLock().lock();
        Thread owner = Thread.currentThread();
        wire.before = command -> {
            boolean late = command.equals(RENEW) && Thread.currentThread() != owner;
            if (late && server.waiting("a") == 1) {
                wire.before = next -> {};
                wire.after = next -> {
                    if (next.equals(RENEW) && Thread.currentThread() != owner) {
                        answered.countDown();
                    }
                };
                long endNanos = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(6_500);
                other.does(() -> locks.readWriteLock("a").readLock().unlock());
                Eventually.isTrue("it is over", () -> System.nanoTime() - endNanos > 0);
            }
        };
        lock.writeLock().lock();
        await(answered);
        assertTrue(lock.writeLock().check());
        assertNull(lost.poll());
        lock.writeLock().unlock();
        lock.readLock().unlock();
    }
}
