package io.github.redislock;

import java.time.Duration;
import java.util.concurrent.TimeUnit;
import java.util.function.LongSupplier;

/**
 * Until when a hold lasts, by a monotonic clock. Each ttl counts from the sending of its request,
 * less 1 % and 2 ms, because clocks differ in speed. With linger it ends so long after the last
 * moment at which its connection is known to have lived.
 */
final class Lease {
    /** One connection that holds are bound to. An answer proves that it lived at the sending. */
    static final class Pulse {
        private volatile long aliveNanos = System.nanoTime();

        synchronized void livedAt(long nanos) {
            if (nanos - aliveNanos > 0) {
                aliveNanos = nanos;
            }
        }
    }

    /** In place of a lease: until it is unlocked. */
    static final long RENEWED = 0;

    private static final long MARGIN_NANOS = TimeUnit.MILLISECONDS.toNanos(2);

    private final LongSupplier clock;
    private final long lingerMs;

    /** Before the first grant. */
    private final long askedNanos;

    private Pulse pulse;
    private long endNanos;

    /** What the request that was sent last sets. */
    private long lastNanos;

    /** With a {@code lingerMs} below 0 it does not linger. */
    Lease(LongSupplier clock, long lingerMs, long askedNanos) {
        this.clock = clock;
        this.lingerMs = lingerMs;
        this.askedNanos = askedNanos;
    }

    private static long endNanos(long sentNanos, long ttlMs) {
        return sentNanos + TimeUnit.MILLISECONDS.toNanos(ttlMs) / 100 * 99 - MARGIN_NANOS;
    }

    /**
     * Whether a lease that was asked for then is over before its owner hears of it. One of which the
     * margin leaves nothing always is, so it does not count: it would be asked for without end.
     */
    static boolean isOver(long sentNanos, long ttlMs) {
        long endNanos = endNanos(sentNanos, ttlMs);
        return endNanos - sentNanos > 0 && System.nanoTime() - endNanos >= 0;
    }

    /** It lasts by what was sent then. */
    synchronized void begin(long sentNanos, long ttlMs) {
        endNanos = endNanos(sentNanos, ttlMs);
    }

    /** The server ends it with this connection from now on. */
    synchronized void bind(Pulse next) {
        pulse = next;
    }

    /** One that does not linger is bound to any. */
    synchronized boolean isBoundTo(Pulse other) {
        return lingerMs < 0 || pulse == other;
    }

    /** How long ago the first grant is at most, by a server whose clock may be fast. */
    long sinceAskedMs() {
        return (clock.getAsLong() - askedNanos) / 990_000 + 1;
    }

    /**
     * A request is sent now. One that shortens the lease counts, whatever becomes of its reply.
     *
     * @return for {@link #answered}
     */
    synchronized long sends(long ttlMs) {
        lastNanos = endNanos(clock.getAsLong(), ttlMs);
        if (lastNanos - endNanos < 0) {
            endNanos = lastNanos;
        }
        return lastNanos;
    }

    /** The server has done it; false if the lease was over by then, which then stays so. */
    synchronized boolean answered(long sent) {
        if (leftNanos() <= 0) {
            return false;
        }
        if (sent == lastNanos) { // Another one may have overtaken it.
            endNanos = sent;
        }
        return true;
    }

    synchronized long leftNanos() {
        return Math.min(ttlLeftNanos(), lingerLeftNanos());
    }

    /** As if its connection lived. */
    synchronized long ttlLeftNanos() {
        return endNanos - clock.getAsLong();
    }

    private long lingerLeftNanos() {
        return lingerMs < 0
                ? Long.MAX_VALUE
                : endNanos(pulse.aliveNanos, lingerMs) - clock.getAsLong();
    }

    /** What to ask for, so that a lease that is begun anew does not get shorter. */
    long leftMs() {
        double leftMs = (double) (Math.max(0, ttlLeftNanos()) + MARGIN_NANOS) / 1_000_000;
        return (long) Math.ceil(leftMs / 0.99);
    }

    /** What a user names, in milliseconds. */
    static long ms(long lease, TimeUnit unit) {
        if (lease == -1) { // Redisson's word for it.
            return RENEWED;
        }
        if (unit.toMillis(lease) < 1) {
            throw new IllegalArgumentException("a lease is at least a millisecond");
        }
        return unit.toMillis(lease);
    }

    static long ms(Duration ttl) {
        return ms(Math.max(0, ttl.toMillis()), TimeUnit.MILLISECONDS);
    }

    static long leastMs(Duration atLeast) {
        if (atLeast.isNegative()) {
            throw new IllegalArgumentException("a lock is not held for less than no time");
        }
        return atLeast.toMillis();
    }

    static long jobMs(Duration most, Duration least) {
        if (ms(most) < leastMs(least)) {
            throw new IllegalArgumentException("lockAtMostFor is not less than lockAtLeastFor");
        }
        return most.toMillis();
    }
}
