package io.github.redislock;

import java.time.Duration;
import java.util.function.BooleanSupplier;

/** Waits for what is not there at once, and not for ever. */
final class Eventually {
    static final Duration BOUND = Duration.ofSeconds(20);

    private Eventually() {}

    static void isTrue(String what, BooleanSupplier condition) {
        isTrue(what, BOUND, condition);
    }

    static void isTrue(String what, Duration bound, BooleanSupplier condition) {
        long end = System.nanoTime() + bound.toNanos();
        while (!condition.getAsBoolean()) {
            if (System.nanoTime() - end > 0) {
                throw new AssertionError("not within " + bound + ": " + what);
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
