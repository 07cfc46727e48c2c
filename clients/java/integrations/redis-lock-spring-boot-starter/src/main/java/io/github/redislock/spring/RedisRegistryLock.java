package io.github.redislock.spring;

import io.github.redislock.RedisLock;

import java.time.Duration;
import java.util.*;
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
    /** What the calling thread has of one key. */
    private static final class Depth {
        private int count = 1;
        private boolean renewed;
    }

    /** What each thread that lives has of the keys of one registry. */
    static final class Depths {
        private final Map<Thread, Map<String, Depth>> all =
                Collections.synchronizedMap(new WeakHashMap<>());

        private Map<String, Depth> mine() {
            return all.getOrDefault(Thread.currentThread(), Map.of());
        }

        private void add(String key, Depth depth) {
            all.computeIfAbsent(Thread.currentThread(), thread -> new HashMap<>()).put(key, depth);
        }

        private void remove(String key) {
            if (mine().size() > 1) {
                mine().remove(key);
            } else if (mine().containsKey(key)) {
                all.remove(Thread.currentThread());
            }
        }

        /** Waits until no thread holds anything, for a time. */
        void awaitNone(Duration time) throws InterruptedException {
            long end = System.nanoTime() + time.toNanos();
            while (!all.isEmpty() && end - System.nanoTime() > 0) {
                Thread.sleep(10);
            }
        }
    }

    /** In place of a ttl, here and in {@link RedisLock}. */
    private static final long RENEWED = -1;

    private final RedisLock lock;
    private final Depths depths;

    RedisRegistryLock(RedisLock lock, Depths depths) {
        this.lock = lock;
        this.depths = depths;
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
        refuseInterrupted();
        if (!nest(RENEWED)) {
            lock.lockInterruptibly();
            begin(RENEWED);
        }
    }

    @Override
    public boolean tryLock() {
        return nest(RENEWED) || (lock.tryLock() && begin(RENEWED));
    }

    @Override
    public boolean tryLock(long time, TimeUnit unit) throws InterruptedException {
        refuseInterrupted();
        return nest(RENEWED) || (lock.tryLock(time, unit) && begin(RENEWED));
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
        refuseInterrupted();
        long waitMs = waitTime.toMillis();
        long ttlMs = ttlMs(ttl);
        return nest(ttlMs) || (lock.tryLock(waitMs, ttlMs, TimeUnit.MILLISECONDS) && begin(ttlMs));
    }

    /**
     * Gives back one {@code lock()}, and with the last one the lock.
     *
     * @throws IllegalMonitorStateException when the thread does not hold it, or has lost it
     */
    @Override
    public void unlock() {
        Depth depth = depths.mine().get(getKey());
        boolean more = false;
        try {
            lock.unlock();
            more = depth != null && --depth.count > 0;
        } finally {
            if (!more) {
                depths.remove(getKey());
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

    /** Whether the calling thread's hold has no ttl of its own. */
    boolean isRenewed() {
        return mine().renewed;
    }

    /** Gives the calling thread's hold a ttl of its own; false when it was lost. */
    boolean renew(Duration ttl) {
        Depth depth = mine();
        try {
            boolean held = lock.renew(ttl);
            depth.renewed = false;
            return held;
        } catch (IllegalMonitorStateException noticedBefore) {
            return false;
        }
    }

    private Depth mine() {
        Depth depth = depths.mine().get(getKey());
        if (depth == null) {
            throw new IllegalMonitorStateException("the lock of " + getKey() + " is not held here");
        }
        return depth;
    }

    private boolean begin(long ttlMs) {
        Depth depth = new Depth();
        depth.renewed = ttlMs == RENEWED;
        depths.add(getKey(), depth);
        return true;
    }

    /**
     * Locks once more what the thread holds; false when it holds nothing. A new hold in place of a
     * lost one would hide the loss. Spring's leader initiator would also release it at once, and
     * still believe that it leads.
     */
    private boolean nest(long ttlMs) {
        Depth depth = depths.mine().get(getKey());
        if (depth == null) {
            return false;
        }
        boolean again = lockAgain(ttlMs);
        if (again && lock.getHoldCount() == depth.count + 1) {
            depth.count++;
            depth.renewed |= ttlMs == RENEWED;
            return true;
        }
        depths.remove(getKey());
        if (again) {
            lock.unlock();
        }
        throw new IllegalMonitorStateException("the lock of " + getKey() + " was lost");
    }

    /** An interrupt counts nothing, so it is tried again. */
    private boolean lockAgain(long ttlMs) {
        boolean interrupted = Thread.interrupted();
        try {
            while (true) {
                try {
                    return lock.tryLock(0, ttlMs, TimeUnit.MILLISECONDS);
                } catch (InterruptedException flag) {
                    interrupted = true;
                }
            }
        } finally {
            if (interrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }

    private static void refuseInterrupted() throws InterruptedException {
        if (Thread.interrupted()) {
            throw new InterruptedException("before asking for a lock");
        }
    }
}
