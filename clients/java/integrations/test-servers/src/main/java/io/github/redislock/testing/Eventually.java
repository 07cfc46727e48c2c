package io.github.redislock.testing;

import java.time.Duration;
import java.util.concurrent.Callable;

/** Waits for a condition, with a bound. */
public final class Eventually {
    private static final Duration BOUND = Duration.ofSeconds(30);

    private Eventually() {}

    /**
     * Fails when the condition is not met in time.
     *
     * @param what for the message
     * @param condition is asked again and again
     */
    public static void isTrue(String what, Callable<Boolean> condition) {
        long end = System.nanoTime() + BOUND.toNanos();
        try {
            while (!condition.call()) {
                if (System.nanoTime() - end > 0) {
                    throw new AssertionError("not within " + BOUND + ": " + what);
                }
                Thread.sleep(5);
            }
        } catch (Exception failed) {
            throw new IllegalStateException("while waiting for: " + what, failed);
        }
    }
}
