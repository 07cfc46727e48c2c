package io.github.redislock;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;

/**
 * One hold of an {@link AsyncLock}. It belongs to no thread: any may give it back. It is renewed
 * until then, or until it is lost.
 */
public final class AsyncHold {
    private final LettuceLockClient client;
    private final Claim claim;
    private final String token;
    private final long fence;
    private final CompletableFuture<String> lost = new CompletableFuture<>();

    /** By {@link System#nanoTime()}, counted from before the sending. */
    private long endNanos;

    private boolean over;
    private Future<?> renewal;
    private Future<?> ending;

    AsyncHold(LettuceLockClient client, Claim claim, String token, long fence, long sentNanos) {
        this.client = client;
        this.claim = claim;
        this.token = token;
        this.fence = fence;
        lease(sentNanos);
        client.holds(this);
    }

    /**
     * The lock's key.
     *
     * @return as it was given; the keys of several with commas between
     */
    public String name() {
        return claim.title();
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
     * Asks the server whether it is held now. A hold that is gone is lost from then on.
     *
     * @return whether it is
     */
    public CompletableFuture<Boolean> check() {
        if (!isHeld()) {
            return CompletableFuture.completedFuture(false);
        }
        return client.check(claim, token)
                .whenComplete(
                        (held, failed) -> {
                            if (failed == null && !held) {
                                lose(Holds.GONE);
                            }
                        });
    }

    /**
     * Has the server run one command only if this is held now, in one step: {@code
     * hold.exec("SET", "stock:42", "7")}. Of several locks it looks at the first by name only. It
     * needs Redis 7.0 or Valkey. When the connection is lost, the command may have run or not, and
     * Lettuce sends it again by default.
     *
     * @param command its name
     * @param arguments strings, byte arrays, numbers
     * @return the command's reply: strings, numbers, lists of them. It fails with {@link
     *     IllegalMonitorStateException} when this is not held any more; nothing was done then
     */
    public CompletableFuture<Object> exec(String command, Object... arguments) {
        if (!isHeld()) {
            return CompletableFuture.failedFuture(Holds.notHeld(claim));
        }
        return client.exec(claim.name(), token, command, arguments).handle(this::executed);
    }

    private Object executed(Object reply, Throwable failed) {
        if (failed == null) {
            return reply;
        }
        Throwable cause = LettuceLockClient.cause(failed);
        if (LettuceLockClient.isError(cause, "NOTHELD")) {
            lose(Holds.GONE);
            throw Holds.notHeld(claim);
        }
        if (LettuceLockClient.isError(cause, "ERR unknown command")) {
            throw Commands.missing(Commands.EXEC_NEEDS, cause);
        }
        throw new CompletionException(cause);
    }

    /**
     * The connection that its end is bound to was lost, so it is bound to the new one. The server
     * answers with the same fence, unless the hold is gone.
     */
    void rebind() {
        long sentNanos = System.nanoTime();
        client.acquire(claim, token, false)
                .whenComplete(
                        (reply, failed) -> {
                            if (failed != null) {
                                renew();
                            } else if (reply instanceof Long granted && granted == fence) {
                                lease(sentNanos);
                            } else {
                                lose(Holds.GONE);
                            }
                        });
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
        return client.release(claim, token);
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
        client.renew(claim, token)
                .whenComplete(
                        (held, failed) -> {
                            if (failed != null) {
                                retry();
                            } else if (held) {
                                lease(sentNanos);
                            } else {
                                lose(Holds.GONE);
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
            client.release(claim, token);
            LostLock news = new LostLock(claim.title(), null, fence, reason);
            client.tellLost(news, () -> lost.complete(reason));
        }
    }

    /** True for the one that ended it. */
    synchronized boolean end() {
        boolean ended = !over;
        over = true;
        cancelPlans();
        client.holdsNoMore(this);
        return ended;
    }

    private void cancelPlans() {
        if (ending != null) { // Both are there, or none.
            ending.cancel(false);
            renewal.cancel(false);
        }
    }
}
