package io.github.redislock;

import redis.clients.jedis.exceptions.JedisException;

import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;

/**
 * What the threads of one client hold; the watchdog, one thread that renews it all; and the clock,
 * another that sees the ends of the leases. A renewal may wait for its answer for longer than there
 * is lease left, so the news of its end must not stand behind it.
 */
final class Holds implements AutoCloseable {
    private record Key(String name, Thread owner) {}

    private final Map<Key, Hold> holds = new ConcurrentHashMap<>();
    private final Set<Acquisition> waiting = ConcurrentHashMap.newKeySet();
    private final Commands commands;
    private final long ttlMs;
    private final Consumer<LostLock> onLost;
    private final ScheduledThreadPoolExecutor watchdog = thread("redis-lock-watchdog");
    private final ScheduledThreadPoolExecutor clock = thread("redis-lock-clock");

    Holds(Commands commands, LockOptions options) {
        this.commands = commands;
        this.ttlMs = options.ttl().toMillis();
        this.onLost = options.onLost();
    }

    private static ScheduledThreadPoolExecutor thread(String name) {
        ScheduledThreadPoolExecutor executor =
                new ScheduledThreadPoolExecutor(
                        1,
                        task -> {
                            Thread thread = new Thread(task, name);
                            thread.setDaemon(true);
                            return thread;
                        });
        executor.setRemoveOnCancelPolicy(true);
        executor.setExecuteExistingDelayedTasksAfterShutdownPolicy(false);
        return executor;
    }

    /** What the calling thread holds, by the client's own clock; null when nothing. */
    Hold mine(String name) {
        if (isClosed()) {
            throw new IllegalStateException("the client is closed");
        }
        Hold hold = holds.get(new Key(name, Thread.currentThread()));
        if (hold != null && hold.leftNanos() <= 0) {
            lose(hold, "its lease ended");
            return null;
        }
        return hold;
    }

    /** Remembers a request until it waits no more, so that {@link #close()} gives up its place. */
    void waits(Acquisition request) {
        waiting.add(request);
    }

    void waitsNoMore(Acquisition request) {
        waiting.remove(request);
    }

    boolean isClosed() {
        return watchdog.isShutdown();
    }

    void add(Hold hold) {
        holds.put(new Key(hold.name, hold.owner), hold);
        watch(hold);
    }

    /** Forgets a hold that its owner gives back. */
    void drop(Hold hold) {
        if (hold.giveBack()) {
            holds.remove(new Key(hold.name, hold.owner), hold);
        }
    }

    void lose(Hold hold, String reason) {
        if (hold.lose()) {
            holds.remove(new Key(hold.name, hold.owner), hold);
            onLost.accept(new LostLock(hold.name, hold.owner, hold.fence, reason));
        }
    }

    /** Has the watchdog and the clock look after a hold whose lease has just begun. */
    synchronized void watch(Hold hold) {
        if (hold.isOver() || clock.isShutdown()) {
            return;
        }
        // Not before the end has passed.
        long endNanos = Math.max(0, hold.leftNanos()) + 1;
        hold.planEnding(clock.schedule(() -> seeEnd(hold), endNanos, TimeUnit.NANOSECONDS));
        if (hold.renewed) {
            planRenewal(hold, TimeUnit.MILLISECONDS.toNanos(ttlMs) / 3);
        }
    }

    private synchronized void planRenewal(Hold hold, long delayNanos) {
        if (!hold.isOver() && !watchdog.isShutdown()) {
            hold.planRenewal(
                    watchdog.schedule(() -> renew(hold), delayNanos, TimeUnit.NANOSECONDS));
        }
    }

    private void seeEnd(Hold hold) {
        if (hold.leftNanos() > 0) {
            watch(hold); // Begun anew this moment.
            return;
        }
        lose(
                hold,
                hold.renewed
                        ? "no renewal came through before its lease ended"
                        : "its lease ended");
    }

    private void renew(Hold hold) {
        // Who is dead cannot unlock; renewing for it would lock everybody out for ever.
        if (hold.isOver() || !hold.owner.isAlive()) {
            return;
        }
        try {
            long sentNanos = System.nanoTime();
            if (!commands.renew(hold.name, hold.token, ttlMs)) {
                // Unless its owner released it while this was on its way.
                lose(hold, "the server says that it is over");
                return;
            }
            hold.lease(sentNanos, ttlMs);
            watch(hold);
            if (hold.isLost()) {
                // It came through too late: the loss is told, so nobody would ever unlock it.
                commands.release(hold.name, hold.token);
            }
        } catch (JedisException failed) {
            planRenewal(hold, TimeUnit.MILLISECONDS.toNanos(ttlMs) / 20);
        }
    }

    /**
     * Stops the watchdog and the clock, and gives up the places of those that wait. What is held
     * ends with its lease.
     */
    @Override
    public void close() {
        synchronized (this) {
            watchdog.shutdownNow();
            clock.shutdownNow();
            holds.clear();
        }
        try {
            for (Acquisition request : waiting) {
                if (!request.isConversion()) {
                    request.release();
                }
            }
        } catch (JedisException outOfReach) {
            // Then the grace ends them.
        }
    }
}
