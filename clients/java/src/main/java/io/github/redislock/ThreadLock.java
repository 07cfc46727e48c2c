package io.github.redislock;

import java.time.Duration;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.Lock;

/**
 * What a lock of one key and one of several have in common. By the methods of {@link Lock} a thread
 * holds it, reentrantly. By {@link #acquire()} and {@link #tryAcquire()} nobody in particular does:
 * they give a {@link RedisHold}, which any thread may renew and give back.
 */
public abstract sealed class ThreadLock implements Lock permits RedisLock, RedisMultiLock {
    /** In place of a lease: until it is unlocked. */
    static final long RENEWED = 0;

    final Commands commands;
    final LockOptions options;
    final Holds holds;
    final Claim claim;

    ThreadLock(Holds holds, Claim claim) {
        this.commands = holds.commands;
        this.options = holds.options;
        this.holds = holds;
        this.claim = claim;
    }

    @Override
    public void lock() {
        lockUninterruptibly(RENEWED);
    }

    /**
     * As {@link #lock()}, for a time.
     *
     * @param lease after which it ends by itself
     * @param unit of the lease
     */
    public void lock(long lease, TimeUnit unit) {
        lockUninterruptibly(leaseMs(lease, unit));
    }

    @Override
    public void lockInterruptibly() throws InterruptedException {
        acquire(Long.MAX_VALUE, RENEWED, true);
    }

    /**
     * As {@link #lockInterruptibly()}, for a time.
     *
     * @param lease after which it ends by itself
     * @param unit of the lease
     * @throws InterruptedException when the thread is interrupted; it then holds nothing more than
     *     before
     */
    public void lockInterruptibly(long lease, TimeUnit unit) throws InterruptedException {
        acquire(Long.MAX_VALUE, leaseMs(lease, unit), true);
    }

    /**
     * Does not wait, nor pass those who do: it is false when somebody waits, even if the lock is
     * free this moment.
     */
    @Override
    public boolean tryLock() {
        try {
            return acquire(0, RENEWED, false);
        } catch (InterruptedException never) {
            throw new AssertionError(never);
        }
    }

    @Override
    public boolean tryLock(long time, TimeUnit unit) throws InterruptedException {
        return acquire(Math.max(0, unit.toNanos(time)), RENEWED, true);
    }

    /**
     * As {@link #tryLock(long, TimeUnit)}, for a time.
     *
     * @param time to wait at most
     * @param lease after which it ends by itself
     * @param unit of both
     * @return whether it is held
     * @throws InterruptedException when the thread is interrupted; it then holds nothing more than
     *     before
     */
    public boolean tryLock(long time, long lease, TimeUnit unit) throws InterruptedException {
        return acquire(Math.max(0, unit.toNanos(time)), leaseMs(lease, unit), true);
    }

    /**
     * Gives back one {@code lock()}, and with the last one all that is held by it.
     *
     * @throws IllegalMonitorStateException when the thread does not hold it, or has lost it
     */
    @Override
    public void unlock() {
        unlock(0);
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
    public void unlock(Duration atLeast) {
        unlock(leastMs(atLeast));
    }

    /**
     * Sets the lease of the calling thread's hold anew, longer or shorter than before, counted from
     * now. From then on the watchdog does not renew it any more, and it ends by itself, until a
     * nested {@code lock()} without a lease.
     *
     * @param ttl the new lease, from a millisecond on
     * @return false when it was lost; it is never taken again
     * @throws IllegalMonitorStateException when the thread does not hold it, or has lost it before
     */
    public boolean renew(Duration ttl) {
        return holds.renew(held(), leaseMs(ttl));
    }

    /**
     * Waits in the server's queue for a hold that belongs to no thread. It is not reentrant, and is
     * renewed until {@link RedisHold#release()} or {@link RedisLockClient#close()}.
     *
     * @return the hold, to be closed
     * @throws InterruptedException when the thread is interrupted; nothing is left of the request
     */
    public RedisHold acquire() throws InterruptedException {
        return holds.handOut(claim, Long.MAX_VALUE, RENEWED, true);
    }

    /**
     * As {@link #acquire()}, for a time.
     *
     * @param lease after which the hold ends by itself
     * @param unit of the lease
     * @return the hold, to be closed
     * @throws InterruptedException when the thread is interrupted; nothing is left of the request
     */
    public RedisHold acquire(long lease, TimeUnit unit) throws InterruptedException {
        return holds.handOut(claim, Long.MAX_VALUE, leaseMs(lease, unit), true);
    }

    /**
     * Does not wait, nor pass those who do.
     *
     * @return a hold that belongs to no thread, to be closed, or null when somebody holds the lock
     *     or waits for it
     */
    public RedisHold tryAcquire() {
        try {
            return holds.handOut(claim, 0, RENEWED, false);
        } catch (InterruptedException never) {
            throw new AssertionError(never);
        }
    }

    /**
     * Waits in the server's queue, for a time.
     *
     * @param time to wait at most
     * @param unit of the time
     * @return a hold that belongs to no thread, to be closed, or null when the time was over
     * @throws InterruptedException when the thread is interrupted; nothing is left of the request
     */
    public RedisHold tryAcquire(long time, TimeUnit unit) throws InterruptedException {
        return holds.handOut(claim, Math.max(0, unit.toNanos(time)), RENEWED, true);
    }

    /**
     * As {@link #tryAcquire(long, TimeUnit)}, for a time.
     *
     * @param time to wait at most; with 0 it does not wait
     * @param lease after which the hold ends by itself
     * @param unit of both
     * @return a hold that belongs to no thread, to be closed, or null when the time was over
     * @throws InterruptedException when the thread is interrupted; nothing is left of the request
     */
    public RedisHold tryAcquire(long time, long lease, TimeUnit unit) throws InterruptedException {
        return holds.handOut(claim, Math.max(0, unit.toNanos(time)), leaseMs(lease, unit), true);
    }

    /**
     * There is none.
     *
     * @throws UnsupportedOperationException always
     */
    @Override
    public Condition newCondition() {
        throw new UnsupportedOperationException("a lock of the server has no conditions");
    }

    /**
     * The number to send with every write, so that the resource can refuse an owner that has been
     * replaced.
     *
     * @return the fence of the calling thread's hold
     * @throws IllegalMonitorStateException when the thread does not hold it, or has lost it
     */
    public long fence() {
        return held().fence;
    }

    /**
     * Whether the thread holds it, as far as the client knows: the lease is not over by its own
     * clock and no renewal was refused. Only {@link #fence()} protects what is done after asking. A
     * machine that sleeps: see docs/ADAPTERS.md.
     *
     * @return whether it does
     */
    public boolean isHeldByCurrentThread() {
        return getHoldCount() > 0;
    }

    /**
     * How often the thread has locked and not unlocked it.
     *
     * @return 0 when it does not hold it, or has lost it
     */
    public int getHoldCount() {
        Hold hold = mine();
        return hold == null ? 0 : count(hold);
    }

    /**
     * Asks the server whether the thread holds it now, where {@link #isHeldByCurrentThread()} goes
     * by what the client knows. A hold that is gone is lost from then on.
     *
     * @return whether it does
     */
    public boolean check() {
        Hold hold = mine();
        return hold != null && count(hold) > 0 && holds.check(hold);
    }

    /** The calling thread's hold on just this; null when it has none. */
    abstract Hold mine();

    abstract int count(Hold hold);

    /** Gives back one {@code lock()}, the last one not before so long after the grant. */
    abstract void unlock(long leastMs);

    /** Whether it was had in time. */
    abstract boolean acquire(long waitNanos, long leaseMs, boolean interruptible)
            throws InterruptedException;

    final Hold held() {
        Hold hold = mine();
        if (hold == null || count(hold) == 0) {
            throw Holds.notHeld(claim);
        }
        return hold;
    }

    static long leaseMs(long lease, TimeUnit unit) {
        if (lease == -1) { // Redisson's word for it.
            return RENEWED;
        }
        if (unit.toMillis(lease) < 1) {
            throw new IllegalArgumentException("a lease is at least a millisecond");
        }
        return unit.toMillis(lease);
    }

    static long leaseMs(Duration ttl) {
        return leaseMs(Math.max(0, ttl.toMillis()), TimeUnit.MILLISECONDS);
    }

    static long leastMs(Duration atLeast) {
        if (atLeast.isNegative()) {
            throw new IllegalArgumentException("a lock is not held for less than no time");
        }
        return atLeast.toMillis();
    }

    private void lockUninterruptibly(long leaseMs) {
        try {
            acquire(Long.MAX_VALUE, leaseMs, false);
        } catch (InterruptedException never) {
            throw new AssertionError(never);
        }
    }

    /** The thread may hold only by this what it asks for by it: it would wait for itself. */
    final void refuseOverlap(boolean interruptible) throws InterruptedException {
        if (interruptible && Thread.interrupted()) {
            throw new InterruptedException("before asking for " + claim.title());
        }
        for (String name : claim.names()) {
            Hold hold = holds.mine(name);
            if (hold != null
                    && (hold.claim.several() || claim.several())
                    && !hold.claim.equals(claim)) {
                throw new IllegalStateException("this thread holds "
                        + hold.claim.title()
                        + " already, and would wait for itself: unlock that first");
            }
        }
    }

    /** Asks the server if a hold is still there, and for as much time as the nested lock wants. */
    final boolean prolong(Hold hold, long leaseMs) {
        boolean held;
        synchronized (hold) { // A renewal that is under way comes first, as it may ask for less.
            hold.renewed |= leaseMs == RENEWED;
            // Where the server renews nothing for a while, its owner works on.
            boolean insists = !hold.renewed && leaseMs > hold.lease.leftMs();
            held = holds.renewed(hold, ttlMs(hold, leaseMs), insists);
        }
        if (held) {
            holds.watch(hold);
        } else {
            holds.lose(hold, Holds.GONE);
        }
        return held;
    }

    /**
     * What to ask for: the watchdog's ttl where it renews, otherwise the lease, but no less than is
     * left of {@code hold}.
     */
    final long ttlMs(Hold hold, long leaseMs) {
        boolean renewed = leaseMs == RENEWED || (hold != null && hold.renewed);
        long wantedMs = renewed ? options.ttl().toMillis() : leaseMs;
        return hold == null ? wantedMs : Math.max(wantedMs, hold.lease.leftMs());
    }
}
