package io.github.redislock;

import java.time.Duration;
import java.util.concurrent.TimeUnit;

/** Times that users name. */
final class Leases {
    /** In place of a lease: until it is unlocked. */
    static final long RENEWED = 0;

    private Leases() {}

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

    static long mostMs(Duration most, Duration least) {
        if (ms(most) < leastMs(least)) {
            throw new IllegalArgumentException("lockAtMostFor is not less than lockAtLeastFor");
        }
        return most.toMillis();
    }
}
