package io.github.redislock;

import java.time.Duration;

/**
 * A hold that belongs to no thread: a permit of a {@link RedisSemaphore}, what {@link
 * RedisLock#acquire()} gives, or what a job of {@link RedisLockClient#runOnce} runs with. Any thread may use it and give it back.
 */
public interface RedisHold extends AutoCloseable {
    /**
     * The key.
     *
     * @return as it was given
     */
    String name();

    /**
     * The token by which the server knows it: {@code LOCK.INFO} shows it.
     *
     * @return another one for every hold
     */
    String id();

    /**
     * The number to send with every write, so that the resource can refuse an owner that has been
     * replaced.
     *
     * @return the fence
     */
    long fence();

    /**
     * Whether it is held, as far as the client knows. Only {@link #fence()} and {@link #exec}
     * protect what is done after asking. A machine that sleeps: see docs/ADAPTERS.md.
     *
     * @return whether it is
     */
    boolean isHeld();

    /**
     * Asks the server whether it is held now. A hold that is gone is lost from then on.
     *
     * @return whether it is
     */
    boolean check();

    /**
     * Sets its lease anew, longer or shorter than before, counted from now. From then on the
     * client does not renew it any more, and it ends by itself.
     *
     * @param ttl the new lease, from a millisecond on
     * @return false when it was lost; it is never taken again
     */
    boolean renew(Duration ttl);

    /**
     * How much of the lease is left by the client's clock, if nobody renews it.
     *
     * @return zero when it is over
     */
    Duration remaining();

    /**
     * Has the server run one command only if this is held now, in one step; see {@link
     * RedisLock#exec}.
     *
     * @param command its name
     * @param arguments strings, byte arrays, numbers
     * @return the command's reply, with strings for bytes
     * @throws IllegalMonitorStateException when it is not held any more. Nothing was done then
     */
    Object exec(String command, Object... arguments);

    /**
     * Gives it back. The next waiter has it at once, or in a {@link RedisLockClient#runOnce} after
     * {@code lockAtLeastFor}.
     *
     * @throws IllegalMonitorStateException when it was lost before
     */
    default void release() {
        release(Duration.ZERO);
    }

    /**
     * Gives it back, but not before a time after its grant, by the server's clock: until then
     * nobody else has it. A lease that ends earlier ends it earlier. In a {@link
     * RedisLockClient#runOnce} the longer time counts.
     *
     * @param atLeast how long it is held at least, counted from its grant. No renewal changes that
     *     moment
     * @throws IllegalMonitorStateException when it was lost before
     * @throws IllegalArgumentException for a time above the server's {@code lock.max-ttl}; it is
     *     given back at once then
     * @throws ModuleMissingException in the fallback, unless the time is zero; it is given back at
     *     once then
     */
    void release(Duration atLeast);

    /**
     * Gives it back, and has the server end it a time from now: until then nobody else has it. A
     * lease that ends earlier ends it earlier.
     *
     * @param rest from a millisecond on
     * @throws IllegalMonitorStateException when it was lost before
     */
    void releaseIn(Duration rest);

    /**
     * As {@link #release()}; nothing where it was released already. If it fails it is renewed no
     * more, and the client tries it again for two minutes.
     */
    @Override
    void close();
}
