package io.github.redislock;

/**
 * Several locks as one: the server grants all of them in one step, or none. A waiter holds nothing
 * and has a place in the queue of each, so crossing requests cannot block one another for ever.
 *
 * <p>A thread holds it as it holds a {@link RedisLock}: reentrantly, renewed by the watchdog, with
 * one fence for all. When one of the locks is lost, so is the whole, and the rest is released.
 *
 * <p>Take all the locks of a piece of work by one multi-lock. A thread that holds one of them by
 * another lock gets an {@link IllegalStateException}, as it would wait for itself.
 */
public final class RedisMultiLock extends ThreadLock {
    RedisMultiLock(Holds holds, Claim claim) {
        super(holds, claim);
    }

    @Override
    void unlock(long leastMs) {
        Hold hold = held();
        if (hold.exclusive > 1) {
            hold.exclusive--;
        } else {
            holds.release(hold, leastMs);
        }
    }

    @Override
    Hold mine() {
        Hold hold = holds.mine(claim.name());
        return hold != null && hold.claim.equals(claim) ? hold : null;
    }

    @Override
    int count(Hold hold) {
        return hold.exclusive;
    }

    @Override
    boolean acquire(long waitNanos, long leaseMs, boolean interruptible)
            throws InterruptedException {
        refuseOverlap(interruptible);
        Hold hold = mine();
        if (hold == null || !prolong(hold, leaseMs)) {
            hold = holds.acquire(claim, ttlMs(null, leaseMs), waitNanos, interruptible);
            if (hold == null) {
                return false;
            }
            hold.renewed = leaseMs == RENEWED;
            holds.add(hold);
        }
        hold.exclusive++;
        return true;
    }
}
