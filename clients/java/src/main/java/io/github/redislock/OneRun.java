package io.github.redislock;

import java.time.Duration;
import java.util.function.Consumer;

/** One try to run a job that nobody else runs, or has just run. */
record OneRun(Holds holds, Claim claim, long mostMs, long leastMs) {
    OneRun {
        if (mostMs < 1 || leastMs < 0 || leastMs > mostMs) {
            throw new IllegalArgumentException(
                    "lockAtMostFor is at least a millisecond, and not less than lockAtLeastFor");
        }
    }

    static OneRun of(Holds holds, String name, Duration most, Duration least) {
        Claim claim = Claim.one(name, Mode.EXCLUSIVE);
        return new OneRun(holds, claim, most.toMillis(), least.toMillis());
    }

    /** Whether it ran here. */
    boolean run(Consumer<RedisHold> job) {
        Hold hold = take();
        if (hold == null) {
            return false;
        }
        try {
            job.accept(new RedisHold(holds, hold));
        } catch (Throwable failed) { // Other languages throw checked exceptions, too.
            try {
                release(hold);
            } catch (RuntimeException late) {
                failed.addSuppressed(late);
            }
            throw failed;
        }
        release(hold);
        return true;
    }

    private Hold take() {
        try {
            Hold hold = holds.take(claim, 0, mostMs, false);
            if (hold != null && hold.fence == 0 && leastMs > 0) {
                new RedisHold(holds, hold).release();
                throw Fallback.lacks(Fallback.LEAST_TIME);
            }
            if (hold != null) {
                hold.leastMs = leastMs;
            }
            return hold;
        } catch (InterruptedException never) {
            throw new AssertionError(never);
        }
    }

    /** A loss is no error here: it is told to {@link LockOptions#onLost()}, and only once. */
    private void release(Hold hold) {
        if (hold.lease.leftNanos() <= 0) {
            holds.lose(hold, Holds.ENDED); // Unless the clock was quicker.
        }
        if (holds.drop(hold, leastMs) && !holds.isHeldAtItsRelease(hold, leastMs)) {
            holds.tellLost(hold, Holds.GONE);
        }
    }
}
