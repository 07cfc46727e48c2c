package io.github.redislock;

import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.Executor;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;

/**
 * One hold of an {@link AsyncLock}. It belongs to no thread: any may give it back. It is renewed
 * until then, or until it is lost.
 */
public final class AsyncHold {
    /** After this a renewal is sent again that the server could not answer yet. */
    private static final Executor SOON =
            CompletableFuture.delayedExecutor(200, TimeUnit.MILLISECONDS);

    private final LettuceLockClient client;
    private final Claim claim;
    private final String token;
    private final long fence;
    private final CompletableFuture<String> lost = new CompletableFuture<>();

    /** The lease, and whether it is begun anew before it ends. */
    private long ttlMs;

    private boolean renewed;

    private final Lease lease = new Lease();
    private boolean over;
    private Future<?> renewal;
    private Future<?> ending;

    AsyncHold(
            LettuceLockClient client,
            Claim claim,
            String token,
            long fence,
            long sentNanos,
            long leaseMs) {
        this.client = client;
        this.claim = claim;
        this.token = token;
        this.fence = fence;
        this.renewed = leaseMs == ThreadLock.RENEWED;
        this.ttlMs = renewed ? client.ttlMs() : leaseMs;
        lease.begin(sentNanos, ttlMs);
        plan();
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
        return !over && lease.leftNanos() > 0;
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
        return client.check(claim, token).whenComplete((held, failed) -> {
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
        long leaseMs = leftMs();
        Lease.Sent sent = lease.sends(leaseMs);
        client.acquire(claim, token, leaseMs, false).whenComplete((reply, failed) -> {
            if (failed != null) {
                retryRebind();
            } else if (reply instanceof Long granted && granted == fence) {
                prolonged(sent);
            } else {
                lose(Holds.GONE);
            }
        });
    }

    /** What a resend asks for: the ttl where it is renewed, otherwise what is left. */
    private synchronized long leftMs() {
        return renewed ? ttlMs : lease.leftMs();
    }

    private synchronized void retryRebind() {
        if (!over) {
            cancel(renewal);
            renewal = client.later(Holds.soonNanos(ttlMs), this::rebind);
        }
    }

    /**
     * Sets its lease anew, longer or shorter than before, counted from now. From then on it is not
     * renewed any more, and ends by itself.
     *
     * @param ttl the new lease, from a millisecond on
     * @return false when it was lost; it is never taken again
     */
    public CompletableFuture<Boolean> renew(Duration ttl) {
        long leaseMs = ThreadLock.leaseMs(ttl);
        synchronized (this) {
            if (!isHeld()) {
                return CompletableFuture.completedFuture(false);
            }
            renewed = false;
            cancel(renewal);
        }
        return renewUntilItEnds(leaseMs);
    }

    /** At TRYAGAIN it asks again for as long as the lease lasts. */
    private CompletableFuture<Boolean> renewUntilItEnds(long leaseMs) {
        Lease.Sent sent = lease.sends(leaseMs);
        return client.renew(claim, token, leaseMs)
                .handle((held, failed) -> {
                    if (failed == null) {
                        if (!held) {
                            lose(Holds.GONE);
                        }
                        return CompletableFuture.completedFuture(held && prolonged(sent));
                    }
                    Throwable cause = LettuceLockClient.cause(failed);
                    if (!LettuceLockClient.isError(cause, "TRYAGAIN")) {
                        return CompletableFuture.<Boolean>failedFuture(cause);
                    }
                    if (!isHeld()) {
                        lose(Holds.ENDED);
                        return CompletableFuture.completedFuture(false);
                    }
                    return CompletableFuture.supplyAsync(() -> renewUntilItEnds(leaseMs), SOON)
                            .thenCompose(next -> next);
                })
                .thenCompose(next -> next);
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
        return unlock(Duration.ZERO);
    }

    /**
     * Gives the lock back, but not before a time after its grant, by the server's clock: until then
     * nobody else has it. A lease that ends earlier ends it earlier.
     *
     * @param atLeast how long it is held at least, counted from its grant
     * @return false when it was not held any more
     */
    public CompletableFuture<Boolean> unlock(Duration atLeast) {
        long leastMs = ThreadLock.leastMs(atLeast);
        if (!end()) {
            return CompletableFuture.completedFuture(false);
        }
        return client.release(claim, token, leastMs);
    }

    /** The server has prolonged it; false when that came too late. */
    private boolean prolonged(Lease.Sent sent) {
        if (!lease.answered(sent)) {
            lose(Holds.ENDED);
            return false;
        }
        plan();
        return true;
    }

    private synchronized void plan() {
        if (over) {
            return;
        }
        cancelPlans();
        ending = client.later(lease.leftNanos() + 1, this::seeEnd);
        if (renewed) {
            renewal = client.later(TimeUnit.MILLISECONDS.toNanos(ttlMs) / 3, this::renew);
        }
    }

    private void seeEnd() {
        if (!isHeld()) {
            lose(wasRenewed() ? "no renewal came through before its lease ended" : Holds.ENDED);
        }
    }

    private synchronized boolean wasRenewed() {
        return renewed;
    }

    private void renew() {
        if (!wasRenewed()) {
            return;
        }
        Lease.Sent sent = lease.sends(ttlMs);
        client.renew(claim, token, ttlMs).whenComplete((held, failed) -> {
            if (failed != null) {
                retry();
            } else if (held && wasRenewed()) {
                prolonged(sent);
            } else if (!held) {
                lose(Holds.GONE);
            }
        });
    }

    private synchronized void retry() {
        if (!over && renewed) {
            renewal = client.later(Holds.soonNanos(ttlMs), this::renew);
        }
    }

    private void lose(String reason) {
        if (end()) {
            // A renewal that is still on its way must leave nothing that nobody would unlock.
            client.release(claim, token, 0);
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
        cancel(ending);
        cancel(renewal);
    }

    private static void cancel(Future<?> plan) {
        if (plan != null) {
            plan.cancel(false);
        }
    }
}
