package io.github.redislock;

import java.util.*;
import java.util.concurrent.ConcurrentLinkedDeque;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import java.util.function.Predicate;

/**
 * Connections that nobody else has: as many as are asked for at once, of which a few idle ones
 * stay.
 */
final class Spares<C> {
    private static final int MOST_IDLE = 8;
    private static final long LONGEST_IDLE_NANOS = TimeUnit.SECONDS.toNanos(30);

    private record Idle<C>(C connection, long sinceNanos) {}

    private final Deque<Idle<C>> idle = new ConcurrentLinkedDeque<>();
    private final Predicate<C> isOpen;
    private final Consumer<C> ending;
    private boolean closed;

    /** {@code ending} may come back to this: it has no lock meanwhile. */
    Spares(Predicate<C> isOpen, Consumer<C> ending) {
        this.isOpen = isOpen;
        this.ending = ending;
    }

    /** An idle one, or null. */
    C find() {
        for (Idle<C> one; (one = idle.pollFirst()) != null; ending.accept(one.connection)) {
            boolean fresh = System.nanoTime() - one.sinceNanos <= LONGEST_IDLE_NANOS;
            if (fresh && isOpen.test(one.connection)) {
                return one.connection;
            }
        }
        return null;
    }

    /** Ends its use, and keeps it for the next if it is usable. */
    void giveBack(C connection, boolean usable) {
        synchronized (this) {
            if (usable && !closed && idle.size() < MOST_IDLE) {
                idle.offerFirst(new Idle<>(connection, System.nanoTime()));
                return;
            }
        }
        ending.accept(connection);
    }

    void endIdle() {
        for (Idle<C> one; (one = idle.pollFirst()) != null; ) {
            ending.accept(one.connection);
        }
    }

    /** Those in use end when they are given back. */
    void close() {
        synchronized (this) {
            closed = true;
        }
        endIdle();
    }
}
