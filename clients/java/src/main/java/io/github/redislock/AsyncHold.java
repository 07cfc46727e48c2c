package io.github.redislock;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;

/**
 * One hold of an {@link AsyncLock}. It belongs to no thread: any may give it back. It is renewed
 * until then, or until it is lost.
 */
public final class AsyncHold {
    private final LettuceLockClient client;
    private final String name;
    private final String token;
    private final long fence;
    private final CompletableFuture<String> lost = new CompletableFuture<>();

    /** By {@link System#nanoTime()}, counted from before the sending. */
    private long endNanos;

    private boolean over;
    private Future<?> renewal;
    private Future<?> ending;

    AsyncHold(LettuceLockClient client, String name, String token, long fence, long sentNanos) {
        this.client = client;
        this.name = name;
        this.token = token;
        this.fence = fence;
        lease(sentNanos);
    }

    /**
     * The lock's key.
     *
     * @return as it was given
     */
    public String name() {
        return name;
    }

    /**
     * The number to send with every write, so that the resource can refuse an owner that has been
     * replaced.
     *
     * @return the fence
     */
    public long fence() {
        return fence;
    }

    /**
     * Whether it is held, as far as the client knows. Only {@link #fence()} protects what is done
     * after asking.
     *
     * @return whether it is
     */
    public synchronized boolean isHeld() {
        return !over && endNanos - System.nanoTime() > 0;
    }

    /**
     * The news that it ended without its owner.
     *
     * @return a future that is completed then, with one line for a log
     */
    public CompletableFuture<String> lost() {
        return lost.copy();
    }

    /**
     * Gives the lock back.
     *
     * @return false when it was not held any more
     */
    public CompletableFuture<Boolean> unlock() {
        if (!end()) {
            return CompletableFuture.completedFuture(false);
        }
        return client.release(name, token);
    }

    private synchronized void lease(long sentNanos) {
        if (over) {
            return;
        }
        endNanos = sentNanos + TimeUnit.MILLISECONDS.toNanos(client.ttlMs());
        cancelPlans();
        ending = client.later(endNanos - System.nanoTime() + 1, this::seeEnd);
        renewal = client.later(TimeUnit.MILLISECONDS.toNanos(client.ttlMs()) / 3, this::renew);
    }

    private void seeEnd() {
        if (!isHeld()) {
            lose("no renewal came through before its lease ended");
        }
    }

    private void renew() {
        long sentNanos = System.nanoTime();
        client.renew(name, token)
                .whenComplete(
                        (held, failed) -> {
                            if (failed != null) {
                                retry();
                            } else if (held) {
                                lease(sentNanos);
                            } else {
                                lose("the server says that it is over");
                            }
                        });
    }

    private synchronized void retry() {
        if (!over) {
            long pauseNanos = TimeUnit.MILLISECONDS.toNanos(client.ttlMs()) / 20;
            renewal = client.later(pauseNanos, this::renew);
        }
    }

    private void lose(String reason) {
        if (end()) {
            // A renewal that is still on its way must leave nothing that nobody would unlock.
            client.release(name, token);
            client.tellLost(new LostLock(name, null, fence, reason), () -> lost.complete(reason));
        }
    }

    /** True for the one that ended it. */
    synchronized boolean end() {
        boolean ended = !over;
        over = true;
        cancelPlans();
        return ended;
    }

    private void cancelPlans() {
        if (ending != null) { // Both are there, or none.
            ending.cancel(false);
            renewal.cancel(false);
        }
    }
}
