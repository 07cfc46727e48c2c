package io.github.redislock;

import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;

/**
 * What may be chosen. Start from {@link #defaults()}.
 *
 * @param ttl the lease of a lock that is held until it is unlocked; the watchdog renews it at a
 *     third of this
 * @param slice the longest wait that is asked of the server at once. A connection that died without
 *     a word is noticed at the end of one; over a {@code UnifiedJedis} only if its {@code
 *     blockingSocketTimeoutMillis} is set
 * @param grace for how long the server keeps a waiter's place in the queue while nobody listens
 *     for it: between two slices, and after a lost connection until the waiter has asked again. It
 *     must outlive a reconnect, and the time-out of an answer. A process that dies while it waits
 *     may cost the waiters behind it this time, once. Zero keeps no place
 * @param reconnect for how long a command is sent again, with the same token, while the server is
 *     out of reach; a {@code tryLock} may take that much longer then, or one answer's time-out (2 s,
 *     or a third of the ttl if that is less) if that is more
 * @param linger when the client's connection is lost, its holds end after this time at the latest,
 *     instead of after the ttl, for the client also. It must outlive a reconnect, after which the client binds its holds
 *     to the new connection. Not for a {@code UnifiedJedis}, nor in a cluster. Empty for no such
 *     end
 * @param onLost is told of every hold that ends without its owner, on threads that only do that;
 *     by default the loss is logged as a warning
 * @param executor runs the continuations of futures; empty for threads of the client's own
 * @param fallback whether a server without the module is used by {@code SET NX PX} and scripts.
 *     That has no fair queue, no fence (it is 0 then, and must never be sent to a resource), no
 *     readers and writers, no semaphores, multi-locks, guarded commands or least times, and a clock
 *     that an eviction or a failover can cut short
 */
public record LockOptions(
        Duration ttl,
        Duration slice,
        Duration grace,
        Duration reconnect,
        Optional<Duration> linger,
        Consumer<LostLock> onLost,
        Optional<Executor> executor,
        boolean fallback) {
    private static final Duration LONGEST_GRACE = Duration.ofHours(1);
    private static final Duration SHORTEST_LINGER = Duration.ofMillis(100);

    /**
     * Checks what was chosen.
     *
     * @param ttl at least a millisecond
     * @param slice at least a millisecond
     * @param grace from a millisecond to an hour, or zero
     * @param reconnect may be zero
     * @param linger at least 100 ms
     * @param onLost not null
     * @param executor empty for threads of the client's own
     * @param fallback off unless the module cannot be loaded
     * @throws IllegalArgumentException when the ttl or the slice is shorter than a millisecond, or
     *     the grace or the linger is out of its range
     */
    public LockOptions {
        if (ttl.toMillis() < 1 || slice.toMillis() < 1) {
            throw new IllegalArgumentException("ttl and slice must be at least a millisecond");
        }
        if (!grace.isZero() && (grace.toMillis() < 1 || grace.compareTo(LONGEST_GRACE) > 0)) {
            throw new IllegalArgumentException("grace must be from a millisecond to an hour");
        }
        if (linger.isPresent() && linger.get().compareTo(SHORTEST_LINGER) < 0) {
            throw new IllegalArgumentException("linger must be at least 100 ms");
        }
    }

    private static void log(LostLock lost) {
        String text = "The lock {0} was lost: {1}. Its fence was {2}.";
        String fence = Long.toString(lost.fence());
        Engine.LOG.log(System.Logger.Level.WARNING, text, lost.name(), lost.reason(), fence);
    }

    /**
     * How long an answer may take: a renewal without one after a third of the ttl must be tried
     * again while there is a lease to renew.
     */
    int answerMs() {
        return (int) Math.min(2_000, Math.max(1, ttl.toMillis() / 3));
    }

    /** For how long it makes sense to wait for a server that does not answer. */
    long patienceNanos() {
        return Math.max(reconnect.toNanos(), TimeUnit.MILLISECONDS.toNanos(answerMs()));
    }

    /**
     * A ttl of 30 s, slices of 10 s, a grace of 5 s, 3 s to reconnect, no linger, losses are logged.
     *
     * @return these
     */
    public static LockOptions defaults() {
        return new LockOptions(
                Duration.ofSeconds(30),
                Duration.ofSeconds(10),
                Duration.ofSeconds(5),
                Duration.ofSeconds(3),
                Optional.empty(),
                LockOptions::log,
                Optional.empty(),
                false);
    }

    /**
     * With another ttl.
     *
     * @param ttl the new one
     * @return a copy
     */
    public LockOptions withTtl(Duration ttl) {
        return new LockOptions(ttl, slice, grace, reconnect, linger, onLost, executor, fallback);
    }

    /**
     * With slices of another length.
     *
     * @param slice the new one
     * @return a copy
     */
    public LockOptions withSlice(Duration slice) {
        return new LockOptions(ttl, slice, grace, reconnect, linger, onLost, executor, fallback);
    }

    /**
     * With another grace for the place of a waiter.
     *
     * @param grace the new one; zero keeps no place
     * @return a copy
     */
    public LockOptions withGrace(Duration grace) {
        return new LockOptions(ttl, slice, grace, reconnect, linger, onLost, executor, fallback);
    }

    /**
     * With another time to reconnect.
     *
     * @param reconnect the new one
     * @return a copy
     */
    public LockOptions withReconnect(Duration reconnect) {
        return new LockOptions(ttl, slice, grace, reconnect, linger, onLost, executor, fallback);
    }

    /**
     * With holds that end soon after the connection is lost.
     *
     * @param linger how soon
     * @return a copy
     */
    public LockOptions withLinger(Duration linger) {
        return new LockOptions(
                ttl, slice, grace, reconnect, Optional.of(linger), onLost, executor, fallback);
    }

    /**
     * With somebody who listens.
     *
     * @param onLost who
     * @return a copy
     */
    public LockOptions withOnLost(Consumer<LostLock> onLost) {
        return new LockOptions(ttl, slice, grace, reconnect, linger, onLost, executor, fallback);
    }

    /**
     * With threads for the continuations of futures. Without it they have threads of the client's
     * own.
     *
     * @param executor runs what the program does with a future of {@link LettuceLockClient}; the
     *     client's own work does not wait for it
     * @return a copy
     */
    public LockOptions withExecutor(Executor executor) {
        return new LockOptions(
                ttl, slice, grace, reconnect, linger, onLost, Optional.of(executor), fallback);
    }

    /**
     * With or without a fallback for servers where the module cannot be loaded. A client chooses at
     * its first use, and says by one warning what is lost.
     *
     * @param fallback whether a server without the module is used by {@code SET NX PX} and scripts
     * @return a copy
     */
    public LockOptions withFallback(boolean fallback) {
        return new LockOptions(ttl, slice, grace, reconnect, linger, onLost, executor, fallback);
    }
}
