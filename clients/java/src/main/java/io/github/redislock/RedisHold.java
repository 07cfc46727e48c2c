package io.github.redislock;

import java.time.Duration;

/**
 * A hold that belongs to no thread: a permit of a {@link RedisSemaphore}, what {@link
 * RedisLock#acquire()} gives, or what a job of {@link RedisLockClient#runOnce} runs with. Any thread may use it and give it back.
 */
public final class RedisHold implements AutoCloseable {
    private final Holds holds;
    private final Hold hold;

    RedisHold(Holds holds, Hold hold) {
        this.holds = holds;
        this.hold = hold;
    }

    /**
     * The key.
     *
     * @return as it was given
     */
    public String name() {
        return hold.claim.name();
    }

    /**
     * The token by which the server knows it: {@code LOCK.INFO} shows it.
     *
     * @return another one for every hold
     */
    public String id() {
        return hold.token;
    }

    /**
     * The number to send with every write, so that the resource can refuse an owner that has been
     * replaced.
     *
     * @return the fence
     */
    public long fence() {
        return hold.fence;
    }

    /**
     * Whether it is held, as far as the client knows. Only {@link #fence()} and {@link #exec}
     * protect what is done after asking. A machine that sleeps: see docs/ADAPTERS.md.
     *
     * @return whether it is
     */
    public boolean isHeld() {
        return !hold.isEnded();
    }

    /**
     * Asks the server whether it is held now. A hold that is gone is lost from then on.
     *
     * @return whether it is
     */
    public boolean check() {
        return isHeld() && holds.check(hold);
    }

    /**
     * Sets its lease anew, longer or shorter than before, counted from now. From then on the
     * client does not renew it any more, and it ends by itself.
     *
     * @param ttl the new lease, from a millisecond on
     * @return false when it was lost; it is never taken again
     */
    public boolean renew(Duration ttl) {
        return holds.renew(hold, ThreadLock.leaseMs(ttl));
    }

    /**
     * How much of the lease is left by the client's clock, if nobody renews it.
     *
     * @return zero when it is over
     */
    public Duration remaining() {
        return isHeld() ? Duration.ofNanos(Math.max(0, hold.lease.leftNanos())) : Duration.ZERO;
    }

    /**
     * Has the server run one command only if this is held now, in one step; see {@link
     * RedisLock#exec}.
     *
     * @param command its name
     * @param arguments strings, byte arrays, numbers
     * @return the command's reply, with strings for bytes
     * @throws IllegalMonitorStateException when it is not held any more. Nothing was done then
     */
    public Object exec(String command, Object... arguments) {
        return holds.exec(hold, command, arguments);
    }

    /**
     * Gives it back. The next waiter has it at once, or in a {@link RedisLockClient#runOnce} after
     * {@code lockAtLeastFor}.
     *
     * @throws IllegalMonitorStateException when it was lost before
     */
    public void release() {
        release(hold.leastMs);
    }

    /**
     * Gives it back, but not before a time after its grant, by the server's clock: until then
     * nobody else has it. A lease that ends earlier ends it earlier.
     *
     * @param atLeast how long it is held at least, counted from its grant. No renewal changes that
     *     moment
     * @throws IllegalMonitorStateException when it was lost before
     * @throws IllegalArgumentException for a time above the server's {@code lock.max-ttl}; it is
     *     given back at once then
     * @throws ModuleMissingException in the fallback, unless the time is zero; it is given back at
     *     once then
     */
    public void release(Duration atLeast) {
        release(ThreadLock.leastMs(atLeast));
    }

    private void release(long ms) {
        if (isHeldStill()) {
            holds.release(hold, ms);
        }
    }

    /**
     * Gives it back, and has the server end it a time from now: until then nobody else has it. A
     * lease that ends earlier ends it earlier.
     *
     * @param rest from a millisecond on
     * @throws IllegalMonitorStateException when it was lost before
     */
    public void releaseIn(Duration rest) {
        long ms = ThreadLock.leaseMs(rest);
        if (isHeldStill()) {
            holds.releaseIn(hold, ms);
        }
    }

    /** False when it was given back before. */
    private boolean isHeldStill() {
        if (hold.isGivenBack()) {
            return false;
        }
        if (!isHeld()) {
            throw Holds.notHeld(hold.claim);
        }
        return true;
    }

    /** As {@link #release()}; nothing where it was released already. */
    @Override
    public void close() {
        release();
    }
}
