package io.github.redislock;

import java.time.Duration;
import java.util.function.BooleanSupplier;

/** Waits for what is not there at once, and not for ever. */
final class Eventually {
    static final Duration BOUND = Duration.ofSeconds(20);

    private Eventually() {}

    static void isTrue(String what, BooleanSupplier condition) {
        long end = System.nanoTime() + BOUND.toNanos();
        while (!condition.getAsBoolean()) {
            if (System.nanoTime() - end > 0) {
                throw new AssertionError("not within " + BOUND + ": " + what);
            }
            pause(5);
        }
    }

    static void pause(long ms) {
        try {
            Thread.sleep(ms);
        } catch (InterruptedException cut) {
            throw new IllegalStateException(cut);
        }
    }
}
