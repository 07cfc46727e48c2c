package io.github.redislock;

import java.util.*;
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

    private final Deque<Idle<C>> idle = new ArrayDeque<>();
    private final Set<C> used = new HashSet<>();
    private final Predicate<C> isOpen;
    private final Consumer<C> ending;
    private boolean closed;

    /** {@code ending} must not wait. */
    Spares(Predicate<C> isOpen, Consumer<C> ending) {
        this.isOpen = isOpen;
        this.ending = ending;
    }

    /** An idle one, or null. */
    synchronized C find() {
        for (Idle<C> one; (one = idle.pollFirst()) != null; ending.accept(one.connection)) {
            boolean fresh = System.nanoTime() - one.sinceNanos <= LONGEST_IDLE_NANOS;
            if (fresh && isOpen.test(one.connection)) {
                return one.connection;
            }
        }
        return null;
    }

    /** Is in use from now on. False where all were closed, and ended. */
    synchronized boolean use(C connection) {
        if (closed) {
            ending.accept(connection);
        }
        return !closed && used.add(connection);
    }

    /** Ends its use; false where that was done before. */
    synchronized boolean giveBack(C connection, boolean usable) {
        boolean inUse = used.remove(connection);
        if (inUse && usable) {
            keep(connection);
        } else if (inUse) {
            ending.accept(connection);
        }
        return inUse;
    }

    /** For the next who looks for one. */
    synchronized void keep(C connection) {
        if (closed || idle.size() >= MOST_IDLE) {
            ending.accept(connection);
        } else {
            idle.addFirst(new Idle<>(connection, System.nanoTime()));
        }
    }

    synchronized void endIdle() {
        idle.forEach(one -> ending.accept(one.connection));
        idle.clear();
    }

    synchronized boolean isClosed() {
        return closed;
    }

    /** Ends those in use, too. */
    synchronized void close() {
        closed = true;
        endIdle();
        used.forEach(ending);
        used.clear();
    }
}
