package io.github.redislock;

import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.function.*;

/**
 * The only thing that knows a library. Nothing outside its implementations names a class of one, so
 * that a program needs one library only.
 */
abstract class Driver implements AutoCloseable {
    /**
     * A connection for one waiter.
     *
     * @param sending sends a command that may wait at the server. An answer after the end is of no
     *     use
     * @param closing ends it, or keeps it where it is usable, by any thread, once. One on which a
     *     command may still wait is of no more use
     */
    record Line(
            BiFunction<Request, Long, CompletableFuture<Object>> sending,
            Consumer<Boolean> closing) {}

    /**
     * A connection that hears the messages of one channel, and is subscribed anew by itself.
     *
     * @param ping whether it answers; the future fails where it does not
     * @param open whether it is connected
     * @param leave has it end and begin anew, at the server that is there now
     * @param close ends it
     */
    record Subscription(
            Supplier<CompletableFuture<?>> ping,
            BooleanSupplier open,
            Runnable leave,
            Runnable close) {}

    /** Whether sending blocks its thread until the answer. */
    final boolean blocks;

    /** Whether another server may take over within a while, as with Sentinel and in a cluster. */
    final boolean failsOver;

    /** Whether one connection stays, so that holds can be bound to it. */
    final boolean keepsOne;

    /** That of the connection that holds are bound to: another one after it was lost. */
    volatile Lease.Pulse pulse = new Lease.Pulse();

    /** Runs after the connection that holds are bound to was made anew. */
    volatile Runnable news = () -> {};

    Driver(boolean blocks, boolean failsOver, boolean keepsOne) {
        this.blocks = blocks;
        this.failsOver = failsOver;
        this.keepsOne = keepsOne;
    }

    /**
     * Sends commands that the server answers at once, together where that can be done. What
     * prolongs or ends a hold goes this way, so no user of the library can keep the connections.
     *
     * @return a Long, a String, null, or a List or a Map of such, for each; or the first failure
     */
    abstract CompletableFuture<List<Object>> send(List<Request> requests, long endNanos);

    /** Null where a waiter can have none now, and asks again and again instead. */
    abstract CompletableFuture<Line> open(long endNanos);

    /** Calls {@code anew} when messages may have been lost. */
    Subscription listen(String channel, Consumer<String> message, Runnable anew) {
        throw new UnsupportedOperationException();
    }

    /** The longest wait that is asked of the server at once, where that is bounded. */
    long mostBlockMs() {
        return Long.MAX_VALUE;
    }

    /** The text of an error that the server gave as its answer; null for any other failure. */
    abstract String refusal(Throwable failed);

    /** Whether a connection is of use after an answer, or after what came instead. */
    boolean isUsableAfter(Throwable failed) {
        String refusal = refusal(failed);
        return failed == null || refusal != null && !Replies.isDemoted(refusal);
    }

    /** Whether no answer came, so that the server may have done the command or not. */
    abstract boolean isOutOfReach(Throwable failed);

    @Override
    public abstract void close();
}
