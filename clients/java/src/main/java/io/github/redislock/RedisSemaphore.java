package io.github.redislock;

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
public interface RedisSemaphore extends Holds {
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
