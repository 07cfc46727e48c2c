package io.github.redislock;

import java.util.concurrent.TimeUnit;

/**
 * A lock that a number of holders share. Each permit has its own token, lease and fence, and those
 * who wait for one stand in the server's queue. Nothing is kept on the server while none is held.
 *
 * <p>The number of permits belongs to each request. Callers who disagree need no configuration: the
 * smallest number counts while its owner holds a permit.
 *
 * <p>A permit belongs to no thread. Without a lease of its own it is renewed until {@link
 * RedisHold#release()} or {@link RedisLockClient#close()}, also when the thread that took it ended.
 */
public interface RedisSemaphore {
    /**
     * Waits in the server's queue for a permit.
     *
     * @return the permit, to be closed
     * @throws InterruptedException when the thread is interrupted; nothing is left of the request
     */
    RedisHold acquire() throws InterruptedException;

    /**
     * As {@link #acquire()}, for a time.
     *
     * @param lease after which the permit ends by itself
     * @param unit of the lease
     * @return the permit, to be closed
     * @throws InterruptedException when the thread is interrupted; nothing is left of the request
     */
    RedisHold acquire(long lease, TimeUnit unit) throws InterruptedException;

    /**
     * Does not wait, nor pass those who do.
     *
     * @return the permit, to be closed, or null when there was none
     */
    RedisHold tryAcquire();

    /**
     * Waits in the server's queue, for a time.
     *
     * @param time to wait at most
     * @param unit of the time
     * @return the permit, to be closed, or null when there was none
     * @throws InterruptedException when the thread is interrupted; nothing is left of the request
     */
    RedisHold tryAcquire(long time, TimeUnit unit) throws InterruptedException;

    /**
     * As {@link #tryAcquire(long, TimeUnit)}, for a time.
     *
     * @param time to wait at most
     * @param lease after which the permit ends by itself
     * @param unit of both
     * @return the permit, to be closed, or null when there was none
     * @throws InterruptedException when the thread is interrupted; nothing is left of the request
     */
    RedisHold tryAcquire(long time, long lease, TimeUnit unit) throws InterruptedException;

    /**
     * Asks the server how many permits nobody holds.
     *
     * @return of those that this semaphore allows
     * @throws ModuleMissingException in the fallback, which has no semaphores
     */
    int availablePermits();

    /**
     * The semaphore's key.
     *
     * @return as it was given
     */
    String getName();
}
