package io.github.redislock;

import java.time.Duration;
import java.util.UUID;
import java.util.function.Consumer;

/** One try to run a job that nobody else runs, or has just run. */
final class OneRun {
    private final Commands commands;
    private final LockOptions options;
    private final Holds holds;
    private final Claim claim;
    private final long mostMs;
    private final long leastMs;

    OneRun(
            Commands commands,
            LockOptions options,
            Holds holds,
            String name,
            Duration lockAtMostFor,
            Duration lockAtLeastFor) {
        this.commands = commands;
        this.options = options;
        this.holds = holds;
        this.claim = Claim.one(name, Mode.EXCLUSIVE);
        this.mostMs = lockAtMostFor.toMillis();
        this.leastMs = lockAtLeastFor.toMillis();
        if (mostMs < 1 || leastMs < 0 || leastMs > mostMs) {
            throw new IllegalArgumentException(
                    "lockAtMostFor is at least a millisecond, and not less than lockAtLeastFor");
        }
    }

    /** Whether it ran here. */
    boolean run(Consumer<RedisHold> job) {
        Hold hold = take();
        if (hold == null) {
            return false;
        }
        holds.watch(hold);
        try {
            job.accept(new RedisHold(holds, hold, leastMs));
        } catch (RuntimeException | Error failed) {
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
        String token = UUID.randomUUID().toString();
        if (leastMs > 0) {
            commands.resend(() -> {
                commands.needAtLeast(claim.name(), token);
                return true;
            });
        }
        try {
            Hold hold = holds.acquire(claim, token, mostMs, 0, false);
            if (hold != null) {
                hold.handedOn = true;
            }
            return hold;
        } catch (InterruptedException never) {
            throw new AssertionError(never);
        }
    }

    /** Says nothing of a hold that was lost: that is told to {@link LockOptions#onLost()}. */
    private void release(Hold hold) {
        if (hold.leftNanos() <= 0) {
            holds.lose(hold, "its lease ended"); // Unless the clock was quicker.
        }
        if (!hold.giveBack()) {
            return;
        }
        commands.resend(() -> commands.release(claim, hold.token, leastMs));
    }
}
