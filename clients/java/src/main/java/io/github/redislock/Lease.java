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
    /** A request under way: the end of the lease before it, and the one that it sets. */
    record Sent(long beforeNanos, long endNanos, long ttlMs) {}

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
    private Pulse pulse;
    private long endNanos;
    private Sent last;

    /** Before the first grant. */
    private long askedNanos;

    /** So long after its first grant the server ends it at the latest. */
    private long mostMs;

    /** Below 0 it does not linger. */
    Lease(LongSupplier clock, long lingerMs) {
        this.clock = clock;
        this.lingerMs = lingerMs;
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

    /** What was granted after {@code askedNanos} lasts by what was sent then, or later. */
    synchronized void begin(long askedNanos, long sentNanos, long ttlMs) {
        boolean first = mostMs == 0;
        this.askedNanos = first ? askedNanos : this.askedNanos;
        endNanos = endNanos(sentNanos, ttlMs);
        mostMs = first && askedNanos == sentNanos ? ttlMs : sinceAskedMs() + ttlMs;
    }

    /** The server ends it with this connection from now on. */
    synchronized void bind(Pulse next) {
        pulse = next;
    }

    synchronized boolean isBoundTo(Pulse other) {
        return pulse == other;
    }

    /** How long ago the first grant is at most, by a server whose clock may be fast. */
    synchronized long sinceAskedMs() {
        return (clock.getAsLong() - askedNanos) / 990_000 + 1;
    }

    /** A request is sent now. One that shortens the lease counts, whatever becomes of its reply. */
    synchronized Sent sends(long ttlMs) {
        last = new Sent(endNanos, endNanos(clock.getAsLong(), ttlMs), ttlMs);
        if (last.endNanos - endNanos < 0) {
            endNanos = last.endNanos;
        }
        return last;
    }

    /** The server has done it; false if the lease was over by then, which then stays so. */
    synchronized boolean answered(Sent sent) {
        if (clock.getAsLong() - sent.beforeNanos >= 0 || lingerLeftNanos() <= 0) {
            return false;
        }
        if (sent == last) { // Another one may have overtaken it.
            endNanos = sent.endNanos;
            mostMs = sinceAskedMs() + sent.ttlMs;
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
        return pulse == null || lingerMs < 0
                ? Long.MAX_VALUE
                : endNanos(pulse.aliveNanos, lingerMs) - clock.getAsLong();
    }

    synchronized long mostMs() {
        return mostMs;
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
