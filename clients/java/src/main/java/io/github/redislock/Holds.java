package io.github.redislock;

import java.util.concurrent.TimeUnit;

/** What gives out holds that belong to no thread: a lock, several as one, or a semaphore. */
public interface Holds {
    /**
     * Waits in the server's queue for a hold that belongs to no thread. It is not reentrant, and is
     * renewed until {@link RedisHold#release()} or {@link RedisLockClient#close()}.
     *
     * @return the hold, to be closed
     * @throws InterruptedException when the thread is interrupted; nothing is left of the request
     */
    default RedisHold acquire() throws InterruptedException {
        return acquire(-1, TimeUnit.NANOSECONDS);
    }

    /**
     * As {@link #acquire()}, for a time.
     *
     * @param lease after which the hold ends by itself; -1 for none
     * @param unit of the lease
     * @return the hold, to be closed
     * @throws InterruptedException when the thread is interrupted; nothing is left of the request
     */
    default RedisHold acquire(long lease, TimeUnit unit) throws InterruptedException {
        return tryAcquire(Long.MAX_VALUE, lease, unit);
    }

    /**
     * Does not wait, nor pass those who do.
     *
     * @return a hold that belongs to no thread, to be closed, or null when somebody holds the lock
     *     or waits for it
     */
    RedisHold tryAcquire();

    /**
     * Waits in the server's queue, for a time.
     *
     * @param time to wait at most
     * @param unit of the time
     * @return a hold that belongs to no thread, to be closed, or null when the time was over
     * @throws InterruptedException when the thread is interrupted; nothing is left of the request
     */
    default RedisHold tryAcquire(long time, TimeUnit unit) throws InterruptedException {
        return tryAcquire(time, -1, unit);
    }

    /**
     * As {@link #tryAcquire(long, TimeUnit)}, for a time.
     *
     * @param time to wait at most; with 0 it does not wait
     * @param lease after which the hold ends by itself; -1 for none
     * @param unit of both
     * @return a hold that belongs to no thread, to be closed, or null when the time was over
     * @throws InterruptedException when the thread is interrupted; nothing is left of the request
     */
    RedisHold tryAcquire(long time, long lease, TimeUnit unit) throws InterruptedException;
}
