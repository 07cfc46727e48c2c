package io.github.redislock.spring;

import io.github.redislock.RedisLock;

import java.time.Duration;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.Lock;

/**
 * A lock of a {@link RedisLockRegistry}: kept by the server, fair, and reentrant per thread.
 *
 * <p>A hold without a ttl of its own is renewed until it is unlocked. When a hold is lost, its
 * thread is told by an {@link IllegalMonitorStateException}: by {@link #unlock()}, or by the next
 * nested {@code lock()}. It then holds nothing, and the {@code lock()} after that is a new hold.
 *
 * <p>With Spring Integration 7 it is a {@code DistributedLock}.
 */
public class RedisRegistryLock implements Lock {
    /** What a thread holds, as far as it was told. */
    record Held(Thread thread, String key) {}

    /** In place of a ttl, here and in {@link RedisLock}. */
    private static final long RENEWED = -1;

    private final RedisLock lock;

    /** Of all threads of the registry, and whether it has no ttl of its own. */
    private final Map<Held, Boolean> holds;

    RedisRegistryLock(RedisLock lock, Map<Held, Boolean> holds) {
        this.lock = lock;
        this.holds = holds;
    }

    @Override
    public void lock() {
        lock(RENEWED);
    }

    /**
     * Waits for a hold that ends by itself.
     *
     * @param ttl after which it ends, at least a millisecond
     */
    public void lock(Duration ttl) {
        lock(ttlMs(ttl));
    }

    /** One below zero is refused, and is no word for a hold that is renewed. */
    private static long ttlMs(Duration ttl) {
        return Math.max(0, ttl.toMillis());
    }

    private void lock(long ttlMs) {
        if (!nest(ttlMs)) {
            lock.lock(ttlMs, TimeUnit.MILLISECONDS);
            begin(ttlMs);
        }
    }

    @Override
    public void lockInterruptibly() throws InterruptedException {
        tryLock(Long.MAX_VALUE, RENEWED, TimeUnit.MILLISECONDS);
    }

    @Override
    public boolean tryLock() {
        return nest(RENEWED) || (lock.tryLock() && begin(RENEWED));
    }

    @Override
    public boolean tryLock(long time, TimeUnit unit) throws InterruptedException {
        return tryLock(time, RENEWED, unit);
    }

    /**
     * Waits for a time for a hold that ends by itself.
     *
     * @param waitTime to wait at most
     * @param ttl after which it ends, at least a millisecond
     * @return whether it is held
     * @throws InterruptedException when the thread is interrupted; nothing is left of the request
     */
    public boolean tryLock(Duration waitTime, Duration ttl) throws InterruptedException {
        return tryLock(waitTime.toMillis(), ttlMs(ttl), TimeUnit.MILLISECONDS);
    }

    private boolean tryLock(long time, long ttl, TimeUnit unit) throws InterruptedException {
        if (Thread.interrupted()) {
            throw new InterruptedException("before asking for a lock");
        }
        return nest(ttl) || (lock.tryLock(time, ttl, unit) && begin(ttl));
    }

    /**
     * Gives back one {@code lock()}, and with the last one the lock.
     *
     * @throws IllegalMonitorStateException when the thread does not hold it, or has lost it
     */
    @Override
    public void unlock() {
        try {
            lock.unlock();
        } finally {
            if (lock.getHoldCount() == 0) {
                holds.remove(mine());
            }
        }
    }

    /**
     * There is none.
     *
     * @throws UnsupportedOperationException always
     */
    @Override
    public Condition newCondition() {
        return lock.newCondition();
    }

    /**
     * The number to send with every write, so that the resource can refuse an owner that has been
     * replaced.
     *
     * @return the fence of the calling thread's hold
     * @throws IllegalMonitorStateException when the thread does not hold it, or has lost it
     */
    public long fence() {
        return lock.fence();
    }

    /**
     * Whether the calling thread holds it, as far as the client knows.
     *
     * @return whether it does
     */
    public boolean isHeldByCurrentThread() {
        return lock.isHeldByCurrentThread();
    }

    /**
     * The lock's key on the server.
     *
     * @return with the registry's prefix
     */
    public String getKey() {
        return lock.getName();
    }

    @Override
    public String toString() {
        return "RedisRegistryLock[" + getKey() + "]";
    }

    /** Asks the server whether the calling thread holds it. */
    boolean check() {
        return lock.check();
    }

    private Held mine() {
        return new Held(Thread.currentThread(), getKey());
    }

    /** Whether the calling thread's hold has no ttl of its own. */
    boolean isRenewed() {
        Boolean renewed = holds.get(mine());
        if (renewed == null) {
            throw new IllegalMonitorStateException("the lock of " + getKey() + " is not held here");
        }
        return renewed;
    }

    /** Gives the calling thread's hold a ttl of its own; false when it was lost. */
    boolean renew(Duration ttl) {
        isRenewed(); // It throws where the thread holds nothing.
        try {
            boolean held = lock.renew(ttl);
            holds.put(mine(), false);
            return held;
        } catch (IllegalMonitorStateException noticedBefore) {
            return false;
        }
    }

    private boolean begin(long ttl) {
        holds.keySet().removeIf(held -> !held.thread().isAlive()); // They cannot unlock any more.
        holds.put(mine(), ttl == RENEWED);
        return true;
    }

    /**
     * Locks once more what the thread holds; false when it holds nothing. A new hold in place of a
     * lost one would hide the loss. Spring's leader initiator would also release it at once, and
     * still believe that it leads.
     */
    private boolean nest(long ttlMs) {
        Boolean renewed = holds.get(mine());
        if (renewed == null) {
            return false;
        }
        int before = lock.getHoldCount();
        boolean again = before > 0 && lockAgain(ttlMs);
        if (again && lock.getHoldCount() > before) {
            holds.put(mine(), renewed || ttlMs == RENEWED);
            return true;
        }
        holds.remove(mine());
        if (again) {
            lock.unlock();
        }
        throw new IllegalMonitorStateException("the lock of " + getKey() + " was lost");
    }

    /** An interrupt counts nothing, so it is tried again. */
    private boolean lockAgain(long ttlMs) {
        try {
            return lock.tryLock(0, ttlMs, TimeUnit.MILLISECONDS);
        } catch (InterruptedException flag) {
            try {
                return lockAgain(ttlMs);
            } finally {
                Thread.currentThread().interrupt();
            }
        }
    }
}
