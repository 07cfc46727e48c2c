package io.github.redislock;

import java.util.function.Consumer;

/**
 * A hold that belongs to no thread: a permit of a {@link RedisSemaphore}, or what a job of {@link
 * RedisLockClient#runOnce} runs with. Any thread may use it and give it back.
 */
public final class RedisHold implements AutoCloseable {
    private final Holds holds;
    private final Hold hold;
    private final Consumer<Hold> end;

    /** With the way to give it back. */
    RedisHold(Holds holds, Hold hold, Consumer<Hold> end) {
        this.holds = holds;
        this.hold = hold;
        this.end = end;
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
     * protect what is done after asking.
     *
     * @return whether it is
     */
    public boolean isHeld() {
        return !hold.isOver() && hold.leftNanos() > 0;
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
        if (hold.isGivenBack()) {
            return;
        }
        if (!isHeld()) {
            throw Holds.notHeld(hold.claim);
        }
        end.accept(hold);
    }

    /** As {@link #release()}; nothing where it was released already. */
    @Override
    public void close() {
        release();
    }
}
