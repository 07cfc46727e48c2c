package io.github.redislock;

import java.time.Duration;
import java.util.concurrent.CompletableFuture;

/**
 * One hold of an {@link AsyncLock}. It belongs to no thread: any may give it back. It is renewed
 * until then, or until it is lost.
 */
public interface AsyncHold {
    /**
     * The lock's key.
     *
     * @return as it was given; the keys of several with commas between
     */
    String name();

    /**
     * The number to send with every write, so that the resource can refuse an owner that has been
     * replaced.
     *
     * @return the fence
     */
    long fence();

    /**
     * Whether it is held, as far as the client knows. Only {@link #fence()} protects what is done
     * after asking. A machine that sleeps: see docs/ADAPTERS.md.
     *
     * @return whether it is
     */
    boolean isHeld();

    /**
     * Asks the server whether it is held now. A hold that is gone is lost from then on.
     *
     * @return whether it is
     */
    CompletableFuture<Boolean> check();

    /**
     * Has the server run one command only if this is held now, in one step: {@code
     * hold.exec("SET", "stock:42", "7")}. Of several locks it looks at the first by name only.
     * When the connection is lost, the command may have run or not, and Lettuce sends it again by
     * default.
     *
     * @param command its name
     * @param arguments strings, byte arrays, numbers
     * @return the command's reply: strings, numbers, lists of them. It fails with {@link
     *     IllegalMonitorStateException} when this is not held any more; nothing was done then
     */
    CompletableFuture<Object> exec(String command, Object... arguments);

    /**
     * Sets its lease anew, longer or shorter than before, counted from now. From then on it is not
     * renewed any more, and ends by itself.
     *
     * @param ttl the new lease, from a millisecond on
     * @return false when it was lost; it is never taken again
     */
    CompletableFuture<Boolean> renew(Duration ttl);

    /**
     * The news that it ended without its owner.
     *
     * @return a future that is completed then, with one line for a log
     */
    CompletableFuture<String> lost();

    /**
     * Gives the lock back.
     *
     * @return false when it was not held any more
     */
    default CompletableFuture<Boolean> unlock() {
        return unlock(Duration.ZERO);
    }

    /**
     * Gives the lock back, but not before a time after its grant, by the server's clock: until then
     * nobody else has it. A lease that ends earlier ends it earlier.
     *
     * @param atLeast how long it is held at least, counted from its grant
     * @return false when it was not held any more. It fails with {@link IllegalArgumentException}
     *     for a time above the server's {@code lock.max-ttl}, and in the fallback with {@link
     *     ModuleMissingException}; the lock is given back at once then
     */
    CompletableFuture<Boolean> unlock(Duration atLeast);
}
