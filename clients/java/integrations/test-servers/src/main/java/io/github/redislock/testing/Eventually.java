package io.github.redislock.testing;

import java.io.UncheckedIOException;
import java.time.Duration;
import java.util.concurrent.Callable;

/** Waits for what is not there at once, and not for ever. */
public final class Eventually {
    /** For what takes a busy machine a while, as a failover does. */
    public static final Duration BOUND = Duration.ofMinutes(1);

    private Eventually() {}

    /** Fails when the condition, which is asked again and again, is not met in time. */
    public static void isTrue(String what, Callable<Boolean> condition) {
        long end = System.nanoTime() + BOUND.toNanos();
        for (boolean met = false; !met; pause(5)) {
            try {
                met = condition.call();
            } catch (UncheckedIOException lost) {
                // One that is promoted closes its connections.
            } catch (Exception failed) {
                throw new IllegalStateException("while waiting for: " + what, failed);
            }
            if (!met && System.nanoTime() - end > 0) {
                throw new AssertionError("not within " + BOUND + ": " + what);
            }
        }
    }

    /** For what must not happen meanwhile, or has to last so long. */
    public static void pause(long ms) {
        try {
            Thread.sleep(ms);
        } catch (InterruptedException cut) {
            throw new IllegalStateException(cut);
        }
    }
}
