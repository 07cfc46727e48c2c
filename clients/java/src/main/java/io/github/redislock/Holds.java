package io.github.redislock;

import redis.clients.jedis.exceptions.JedisException;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;

/**
 * What the threads of one client hold, and the watchdog: one thread that renews it all and sees
 * what is lost.
 */
final class Holds implements AutoCloseable {
    private record Key(String name, Thread owner) {}

    private final Map<Key, Hold> holds = new ConcurrentHashMap<>();
    private final Commands commands;
    private final long ttlMs;
    private final Consumer<LostLock> onLost;
    private final ScheduledThreadPoolExecutor watchdog;

    Holds(Commands commands, LockOptions options) {
        this.commands = commands;
        this.ttlMs = options.ttl().toMillis();
        this.onLost = options.onLost();
        watchdog =
                new ScheduledThreadPoolExecutor(
                        1,
                        task -> {
                            Thread thread = new Thread(task, "redis-lock-watchdog");
                            thread.setDaemon(true);
                            return thread;
                        });
        watchdog.setRemoveOnCancelPolicy(true);
        watchdog.setExecuteExistingDelayedTasksAfterShutdownPolicy(false);
    }

    /** What the calling thread holds, by the client's own clock; null when nothing. */
    Hold mine(String name) {
        if (watchdog.isShutdown()) {
            throw new IllegalStateException("the client is closed");
        }
        Hold hold = holds.get(new Key(name, Thread.currentThread()));
        if (hold != null && hold.leftNanos() <= 0) {
            lose(hold, "its lease ended");
            return null;
        }
        return hold;
    }

    void add(Hold hold) {
        holds.put(new Key(hold.name, hold.owner), hold);
        watch(hold);
    }

    /** Forgets a hold that its owner gives back. */
    void drop(Hold hold) {
        if (hold.end()) {
            holds.remove(new Key(hold.name, hold.owner), hold);
        }
    }

    void lose(Hold hold, String reason) {
        if (hold.end()) {
            holds.remove(new Key(hold.name, hold.owner), hold);
            onLost.accept(new LostLock(hold.name, hold.owner, hold.fence, reason));
        }
    }

    /** Has the watchdog look after a hold whose lease has just begun. */
    void watch(Hold hold) {
        plan(hold, hold.renewed ? TimeUnit.MILLISECONDS.toNanos(ttlMs) / 3 : hold.leftNanos());
    }

    private synchronized void plan(Hold hold, long delayNanos) {
        if (hold.next != null) {
            hold.next.cancel(false);
        }
        // Not before the end of the lease has passed, nor after it because of a renewal that was
        // due later.
        long delay = Math.max(0, Math.min(delayNanos, hold.leftNanos()) + 1);
        if (!hold.isOver() && !watchdog.isShutdown()) {
            hold.next = watchdog.schedule(() -> look(hold), delay, TimeUnit.NANOSECONDS);
        }
    }

    private void look(Hold hold) {
        if (hold.isOver()) {
            return;
        }
        if (hold.leftNanos() <= 0) {
            lose(
                    hold,
                    hold.renewed
                            ? "no renewal came through before its lease ended"
                            : "its lease ended");
            return;
        }
        // Who is dead cannot unlock; renewing for it would lock everybody out for ever.
        if (!hold.renewed || !hold.owner.isAlive()) {
            plan(hold, hold.leftNanos());
            return;
        }
        try {
            long sentNanos = System.nanoTime();
            if (commands.renew(hold.name, hold.token, ttlMs)) {
                hold.lease(sentNanos, ttlMs);
                watch(hold);
            } else {
                // Unless its owner released it while this was on its way.
                lose(hold, "the server says that it is over");
            }
        } catch (JedisException failed) {
            plan(hold, TimeUnit.MILLISECONDS.toNanos(ttlMs) / 20);
        }
    }

    /** Stops the watchdog. What is held ends with its lease. */
    @Override
    public void close() {
        watchdog.shutdownNow();
        holds.clear();
    }
}
