package io.github.redislock;

import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * One thread's hold on one lock: one token, one fence, one lease, however often the thread locked.
 * Its counts belong to the owner alone; the rest is shared with the watchdog.
 */
final class Hold {
    final String name;
    final Thread owner;
    final String token;
    final long fence;

    /**
     * How often the owner has it exclusively and shared. On the server it is exclusive while the
     * first is above 0.
     */
    int exclusive;

    int shared;

    /** Whether the watchdog renews it. */
    volatile boolean renewed;

    /** What the watchdog does next. */
    volatile Future<?> next;

    /**
     * By {@link System#nanoTime()}; counted from before the sending, so the server's deadline is
     * not earlier.
     */
    private volatile long endNanos;

    private final AtomicBoolean over = new AtomicBoolean();

    Hold(String name, Thread owner, String token, long fence) {
        this.name = name;
        this.owner = owner;
        this.token = token;
        this.fence = fence;
    }

    int count(Mode mode) {
        return mode == Mode.EXCLUSIVE ? exclusive : shared;
    }

    void add(Mode mode, int times) {
        if (mode == Mode.EXCLUSIVE) {
            exclusive += times;
        } else {
            shared += times;
        }
    }

    void lease(long sentNanos, long ttlMs) {
        endNanos = sentNanos + TimeUnit.MILLISECONDS.toNanos(ttlMs);
    }

    long leftNanos() {
        return endNanos - System.nanoTime();
    }

    /** Rounded up, so that a lease that is begun anew with it does not get shorter. */
    long leftMs() {
        return Math.max(0, TimeUnit.NANOSECONDS.toMillis(leftNanos())) + 1;
    }

    /** Ends it; true for the one who did. */
    boolean end() {
        if (!over.compareAndSet(false, true)) {
            return false;
        }
        Future<?> planned = next;
        if (planned != null) {
            planned.cancel(false);
        }
        return true;
    }

    boolean isOver() {
        return over.get();
    }
}
