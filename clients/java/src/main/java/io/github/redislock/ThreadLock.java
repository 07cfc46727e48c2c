package io.github.redislock;

import java.time.Duration;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.Lock;

/**
 * What a lock of one key and one of several have in common. By the methods of {@link Lock} a thread
 * holds it, reentrantly. By {@link Holds#acquire()} and {@link Holds#tryAcquire()} nobody in
 * particular does: they give a {@link RedisHold}, which any thread may renew and give back.
 */
public interface ThreadLock extends Lock, Holds {
    @Override
    default void lock() {
        lock(-1, TimeUnit.NANOSECONDS);
    }

    /**
     * As {@link #lock()}, for a time.
     *
     * @param lease after which it ends by itself; -1 for none
     * @param unit of the lease
     */
    void lock(long lease, TimeUnit unit);

    @Override
    default void lockInterruptibly() throws InterruptedException {
        lockInterruptibly(-1, TimeUnit.NANOSECONDS);
    }

    /**
     * As {@link #lockInterruptibly()}, for a time.
     *
     * @param lease after which it ends by itself; -1 for none
     * @param unit of the lease
     * @throws InterruptedException when the thread is interrupted; it then holds nothing more than
     *     before
     */
    default void lockInterruptibly(long lease, TimeUnit unit) throws InterruptedException {
        tryLock(Long.MAX_VALUE, lease, unit);
    }

    /**
     * Does not wait, nor pass those who do: it is false when somebody waits, even if the lock is
     * free this moment.
     */
    @Override
    boolean tryLock();

    @Override
    default boolean tryLock(long time, TimeUnit unit) throws InterruptedException {
        return tryLock(time, -1, unit);
    }

    /**
     * As {@link #tryLock(long, TimeUnit)}, for a time.
     *
     * @param time to wait at most
     * @param lease after which it ends by itself; -1 for none
     * @param unit of both
     * @return whether it is held
     * @throws InterruptedException when the thread is interrupted; it then holds nothing more than
     *     before
     */
    boolean tryLock(long time, long lease, TimeUnit unit) throws InterruptedException;

    /**
     * Gives back one {@code lock()}, and with the last one all that is held by it.
     *
     * <p>It is held until the server has answered: after any other exception it can be repeated.
     *
     * @throws IllegalMonitorStateException when the thread does not hold it, or has lost it
     */
    @Override
    default void unlock() {
        unlock(Duration.ZERO);
    }

    /**
     * As {@link #unlock()}, but the last one keeps the lock for a time after its grant, by the
     * server's clock: until then nobody else has it. A lease that ends earlier ends it earlier.
     *
     * @param atLeast how long it is held at least, counted from its grant
     * @throws IllegalMonitorStateException when the thread does not hold it, or has lost it
     * @throws IllegalArgumentException for a time above the server's {@code lock.max-ttl}; it is
     *     given back at once then
     * @throws ModuleMissingException in the fallback, unless the time is zero; it is given back at
     *     once then
     */
    void unlock(Duration atLeast);

    /**
     * Sets the lease of the calling thread's hold anew, longer or shorter than before, counted from
     * now. From then on the watchdog does not renew it any more, and it ends by itself, until a
     * nested {@code lock()} without a lease.
     *
     * @param ttl the new lease, from a millisecond on
     * @return false when it was lost; it is never taken again
     * @throws IllegalMonitorStateException when the thread does not hold it, or has lost it before
     */
    boolean renew(Duration ttl);

    /**
     * There is none.
     *
     * @throws UnsupportedOperationException always
     */
    @Override
    default Condition newCondition() {
        throw new UnsupportedOperationException("a lock of the server has no conditions");
    }

    /**
     * The number to send with every write, so that the resource can refuse an owner that has been
     * replaced.
     *
     * @return the fence of the calling thread's hold
     * @throws IllegalMonitorStateException when the thread does not hold it, or has lost it
     */
    long fence();

    /**
     * Whether the thread holds it, as far as the client knows: the lease is not over by its own
     * clock and no renewal was refused. Only {@link #fence()} protects what is done after asking. A
     * machine that sleeps: see docs/ADAPTERS.md.
     *
     * @return whether it does
     */
    default boolean isHeldByCurrentThread() {
        return getHoldCount() > 0;
    }

    /**
     * How often the thread has locked and not unlocked it.
     *
     * @return 0 when it does not hold it, or has lost it
     */
    int getHoldCount();

    /**
     * Asks the server whether the thread holds it now, where {@link #isHeldByCurrentThread()} goes
     * by what the client knows. A hold that is gone is lost from then on.
     *
     * @return whether it does
     */
    boolean check();
}
