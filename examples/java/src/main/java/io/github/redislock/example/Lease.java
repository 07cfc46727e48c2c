package io.github.redislock.example;

import static java.util.concurrent.TimeUnit.MILLISECONDS;

import redis.clients.jedis.CommandArguments;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.exceptions.JedisConnectionException;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.exceptions.JedisException;

import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeoutException;
import java.util.function.BooleanSupplier;

/**
 * A hold on the lock that a watchdog keeps alive, and that knows by its own clock when it is over.
 */
final class Lease implements AutoCloseable {
    private static final long RE_ASK_MS = 50;

    /** For how long it is tried to leave nothing behind. */
    private static final long GIVE_UP_MS = 2_000;

    private final RedisClient redis;
    private final Arguments arguments;
    private final long fence;
    private final CompletableFuture<String> lost = new CompletableFuture<>();
    private final ScheduledExecutorService watchdog = Executors.newSingleThreadScheduledExecutor();
    private volatile long endNanos;

    private Lease(RedisClient redis, Arguments arguments, long fence, long endNanos) {
        this.redis = redis;
        this.arguments = arguments;
        this.fence = fence;
        this.endNanos = endNanos;
    }

    /**
     * Waits for the lock for {@code --block} in all, in slices that keep one place in the queue;
     * empty when it was unavailable.
     */
    static Optional<Lease> acquire(RedisClient redis, Arguments arguments)
            throws InterruptedException {
        Optional<Lease> lease = Optional.empty();
        try {
            lease = await(redis, arguments);
            return lease;
        } catch (JedisConnectionException noServer) {
            return Optional.empty();
        } finally {
            if (lease.isEmpty()) {
                giveUp(arguments);
            }
        }
    }

    /** As {@link #acquire}, but throws when the last answer did not come. */
    private static Optional<Lease> await(RedisClient redis, Arguments arguments)
            throws InterruptedException {
        long giveUpNanos = System.nanoTime() + MILLISECONDS.toNanos(arguments.blockMs());
        while (true) {
            long sentNanos = System.nanoTime();
            // The same token every time: if the reply to a grant was lost, this is told the same
            // fence again.
            Long fence = ask(redis, arguments, giveUpNanos);
            // The server may have granted at any moment of the wait. After a long one, what is left
            // of the lease is
            // too uncertain: a renewal sets it anew, and its sending is surely before the lease's
            // beginning.
            if (fence != null && waitedLong(sentNanos, arguments.ttlMs())) {
                sentNanos = System.nanoTime();
                fence = renew(redis, arguments, () -> isPast(giveUpNanos)) ? fence : null;
            }
            if (fence != null) {
                return Optional.of(
                        new Lease(redis, arguments, fence, end(sentNanos, arguments.ttlMs())));
            }
            if (isPast(giveUpNanos)) {
                return Optional.empty();
            }
        }
    }

    private static Long ask(RedisClient redis, Arguments arguments, long giveUpNanos)
            throws InterruptedException {
        LockCommand acquire = arguments.shared() ? LockCommand.RLOCK : LockCommand.ACQUIRE;
        try {
            return Connections.resending(
                    () -> isPast(giveUpNanos),
                    () -> {
                        CommandArguments command =
                                acquire.of(arguments.lock(), arguments.token())
                                        .add(arguments.ttlMs());
                        long leftMs = (giveUpNanos - System.nanoTime()) / 1_000_000;
                        if (leftMs > 0) { // BLOCK 0 would wait for ever
                            command.add("BLOCK")
                                    .add(Math.min(leftMs, Connections.SLICE_MS))
                                    .add("KEEP")
                                    .add(Connections.GRACE_MS)
                                    .blocking();
                        }
                        return (Long) redis.executeCommand(command);
                    });
        } catch (JedisDataException refusal) {
            // An old client's string lock is on the key: ask again until it is gone.
            if (!refusal.getMessage().startsWith("WRONGTYPE")) {
                throw refusal;
            }
            Thread.sleep(RE_ASK_MS);
            return null;
        }
    }

    /**
     * Leaves the queue, and releases what may have been granted by an answer that was lost. It takes
     * a new connection, as the old ones may be dead. Without it the place would stay for its grace,
     * and the lock would be held for its ttl.
     */
    private static void giveUp(Arguments arguments) throws InterruptedException {
        long giveUpNanos = System.nanoTime() + MILLISECONDS.toNanos(GIVE_UP_MS);
        try (RedisClient fresh = Connections.open(arguments.url(), arguments.ttlMs(), 0)) {
            release(fresh, arguments, () -> isPast(giveUpNanos));
        } catch (JedisException noServer) {
            System.err.println("cannot give up what was asked for: " + noServer.getMessage());
        }
    }

    private static boolean renew(RedisClient redis, Arguments arguments, BooleanSupplier stop)
            throws InterruptedException {
        CommandArguments command =
                LockCommand.RENEW.of(arguments.lock(), arguments.token()).add(arguments.ttlMs());
        return Connections.resending(stop, () -> (Long) redis.executeCommand(command)) == 1;
    }

    private static boolean waitedLong(long sentNanos, long ttlMs) {
        return System.nanoTime() - sentNanos > MILLISECONDS.toNanos(ttlMs) / 10;
    }

    private static boolean isPast(long nanos) {
        return System.nanoTime() - nanos >= 0;
    }

    private static long end(long sentNanos, long ttlMs) {
        // The server's clock may be faster by 1 %.
        return sentNanos + MILLISECONDS.toNanos(ttlMs) / 100 * 99 - MILLISECONDS.toNanos(2);
    }

    /** Renews at a third of the ttl from now on, on a connection that the work does not use. */
    void keepAlive() {
        long thirdMs = Math.max(1, arguments.ttlMs() / 3);
        watchdog.scheduleWithFixedDelay(this::renewOnce, thirdMs, thirdMs, MILLISECONDS);
    }

    private void renewOnce() {
        try {
            long sentNanos = System.nanoTime();
            // After a long stop the lease may have ended: then it stays so.
            if (renew(redis, arguments, () -> isPast(endNanos)) && lost().isEmpty()) {
                endNanos = end(sentNanos, arguments.ttlMs());
                Worker.say("renewed");
            } else {
                lost.complete("the server says that the hold is over");
            }
        } catch (JedisConnectionException noServer) {
            lost.complete("no renewal came through before the lease ended");
        } catch (InterruptedException closing) {
            Thread.currentThread().interrupt();
        } catch (RuntimeException broken) {
            lost.complete("the renewal failed: " + broken.getMessage());
        }
    }

    /**
     * Why the hold is over, or nothing while it is not. To be asked before everything that needs
     * the lock.
     */
    Optional<String> lost() {
        // The watchdog may have slept as long as everybody else, so the clock is asked, too.
        if (isPast(endNanos)) {
            lost.complete("the lease ended before it was renewed");
        }
        return Optional.ofNullable(lost.getNow(null));
    }

    /** Sleeps, but not longer than the hold lasts; then as {@link #lost()}. */
    Optional<String> lostWithin(long pauseMs) throws InterruptedException {
        try {
            lost.get(pauseMs, MILLISECONDS);
        } catch (TimeoutException | ExecutionException stillHeld) {
            // Nobody completes it with an exception.
        }
        return lost();
    }

    long fence() {
        return fence;
    }

    boolean release() throws InterruptedException {
        close();
        return release(redis, arguments, () -> isPast(endNanos));
    }

    private static boolean release(RedisClient redis, Arguments arguments, BooleanSupplier stop)
            throws InterruptedException {
        CommandArguments command = LockCommand.RELEASE.of(arguments.lock(), arguments.token());
        return Connections.resending(stop, () -> (Long) redis.executeCommand(command)) == 1;
    }

    /** Stops the watchdog; what is held then ends with its lease. */
    @Override
    public void close() {
        watchdog.shutdownNow();
    }
}
