package io.github.redislock;

import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;

/**
 * For how long the calling thread waits for an answer, the connecting for it included. Jedis has
 * one read time-out for all commands that block, and that must be above the longest of them: a
 * short wait at a silent server would take as long.
 */
final class AnswerTime {
    private static final ThreadLocal<Long> END_NANOS = new ThreadLocal<>();

    private AnswerTime() {}

    /** Runs a command whose answer is of no use after {@code endNanos}. */
    static <T> T until(long endNanos, Supplier<T> command) {
        END_NANOS.set(endNanos);
        try {
            return command.get();
        } finally {
            END_NANOS.remove();
        }
    }

    /** What is left of it, but no more than {@code mostMs}; never 0, which is for ever. */
    static int leftMs(int mostMs) {
        Long endNanos = END_NANOS.get();
        if (endNanos == null) {
            return mostMs;
        }
        // Rounded up, as asking again a moment before the end would be in vain.
        long leftMs = TimeUnit.NANOSECONDS.toMillis(endNanos - System.nanoTime()) + 1;
        return (int) Math.max(1, Math.min(mostMs, leftMs));
    }
}
