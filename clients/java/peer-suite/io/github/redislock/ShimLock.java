package io.github.redislock;

import com.hazelcast.cp.CPGroupId;
import com.hazelcast.cp.lock.FencedLock;

import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;

/**
 * A RedisLock under the interface of Hazelcast's lock: other names, and a fence that is 0 where
 * there is none.
 */
final class ShimLock implements FencedLock {
    private final RedisLock lock;

    ShimLock(RedisLock lock) {
        this.lock = lock;
    }

    @Override
    public void lock() {
        lock.lock();
    }

    @Override
    public void lockInterruptibly() throws InterruptedException {
        lock.lockInterruptibly();
    }

    @Override
    public long lockAndGetFence() {
        lock.lock();
        return lock.fence();
    }

    @Override
    public boolean tryLock() {
        return lock.tryLock();
    }

    @Override
    public long tryLockAndGetFence() {
        return tryLock() ? lock.fence() : INVALID_FENCE;
    }

    @Override
    public boolean tryLock(long time, TimeUnit unit) {
        try {
            return lock.tryLock(time, unit);
        } catch (InterruptedException interrupted) {
            throw new IllegalStateException(interrupted); // Hazelcast's is not interruptible here.
        }
    }

    @Override
    public long tryLockAndGetFence(long time, TimeUnit unit) {
        return tryLock(time, unit) ? lock.fence() : INVALID_FENCE;
    }

    @Override
    public void unlock() {
        lock.unlock();
    }

    @Override
    public long getFence() {
        return lock.fence();
    }

    @Override
    public boolean isLocked() {
        return lock.isLocked();
    }

    @Override
    public boolean isLockedByCurrentThread() {
        return lock.isHeldByCurrentThread();
    }

    /**
     * Hazelcast counts for all threads, this lock for the own: another's is known to be held, not
     * how often.
     */
    @Override
    public int getLockCount() {
        return lock.isHeldByCurrentThread() || !lock.isLocked() ? lock.getHoldCount() : 1;
    }

    @Override
    public Condition newCondition() {
        return lock.newCondition();
    }

    @Override
    public String getName() {
        return lock.getName();
    }

    @Override
    public CPGroupId getGroupId() {
        throw new UnsupportedOperationException();
    }

    @Override
    public String getPartitionKey() {
        throw new UnsupportedOperationException();
    }

    @Override
    public String getServiceName() {
        throw new UnsupportedOperationException();
    }

    @Override
    public void destroy() {
        throw new UnsupportedOperationException();
    }
}
