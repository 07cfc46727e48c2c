package io.github.redislock;

import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;

/**
 * One hold of an {@link AsyncLock}. It belongs to no thread: any may give it back. It is renewed
 * until then, or until it is lost.
 */
public final class AsyncHold {
    /** After this a renewal is sent again that the server could not answer yet. */
    private static final Executor SOON =
            CompletableFuture.delayedExecutor(200, TimeUnit.MILLISECONDS);

    private final LettuceLockClient client;
    final Hold hold;

    /** Whether it is renewed while no lease is being set. */
    private boolean renews;

    private final CompletableFuture<String> lost = new CompletableFuture<>();

    AsyncHold(
            LettuceLockClient client,
            Claim claim,
            String token,
            long fence,
            long askedNanos,
            long sentNanos,
            long leaseMs) {
        this.client = client;
        this.hold = new Hold(claim, null, token, fence);
        renews = leaseMs == ThreadLock.RENEWED;
        hold.renewed = renews;
        hold.lease.begin(askedNanos, sentNanos, hold.renewed ? client.ttlMs() : leaseMs);
        plan();
        client.holds(this);
    }

    /**
     * The lock's key.
     *
     * @return as it was given; the keys of several with commas between
     */
    public String name() {
        return hold.claim.title();
    }

    /**
     * The number to send with every write, so that the resource can refuse an owner that has been
     * replaced.
     *
     * @return the fence
     */
    public long fence() {
        return hold.fence;
    }

    /**
     * Whether it is held, as far as the client knows. Only {@link #fence()} protects what is done
     * after asking. A machine that sleeps: see docs/ADAPTERS.md.
     *
     * @return whether it is
     */
    public boolean isHeld() {
        return !hold.isEnded();
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
        return client.check(hold.claim, hold.token).thenApply(held -> {
            if (!held) {
                lose(Holds.GONE);
            }
            return isHeld();
        });
    }

    /**
     * Has the server run one command only if this is held now, in one step: {@code
     * hold.exec("SET", "stock:42", "7")}. Of several locks it looks at the first by name only.
     * When the connection is lost, the command may have run or not, and Lettuce sends it again by
     * default.
     *
     * @param command its name
     * @param arguments strings, byte arrays, numbers
     * @return the command's reply: strings, numbers, lists of them. It fails with {@link
     *     IllegalMonitorStateException} when this is not held any more; nothing was done then
     */
    public CompletableFuture<Object> exec(String command, Object... arguments) {
        if (!isHeld()) {
            return CompletableFuture.failedFuture(Holds.notHeld(hold.claim));
        }
        return client.exec(hold.claim.name(), hold.token, command, arguments)
                .exceptionallyCompose(this::withItsLoss)
                .handle(this::executed);
    }

    /** A wrong type may be the lock's, or the command's. */
    private CompletableFuture<Object> withItsLoss(Throwable failed) {
        if (!LettuceLockClient.isError(LettuceLockClient.cause(failed), "WRONGTYPE")) {
            return CompletableFuture.failedFuture(failed);
        }
        return client.check(hold.claim, hold.token)
                .exceptionally(unknown -> true)
                .thenCompose(held -> CompletableFuture.failedFuture(
                        held ? failed : Holds.notHeld(hold.claim)));
    }

    private Object executed(Object reply, Throwable failed) {
        if (failed == null) {
            return reply;
        }
        Throwable cause = LettuceLockClient.cause(failed);
        if (cause instanceof IllegalMonitorStateException
                || LettuceLockClient.isError(cause, "NOTHELD")) {
            lose(Holds.GONE);
            throw Holds.notHeld(hold.claim);
        }
        throw new CompletionException(cause);
    }

    /** The connection that its end is bound to was lost, so it is bound to the new one. */
    void rebind() {
        hold.unbound = true;
        renew();
    }

    /** Where the server does not do it now, it has said that it is held: the next renewal asks. */
    private synchronized void bind() {
        if (hold.isOver()) {
            return; // Of one that was given back meanwhile it would make a new hold.
        }
        hold.unbound = false; // Before it is sent, as that connection may be lost as well.
        client.acquire(hold.claim, hold.token, leftMs(), () -> false)
                .whenComplete((reply, failed) -> {
                    Throwable cause = LettuceLockClient.cause(failed);
                    boolean another = reply instanceof Long fence && fence != hold.fence;
                    if (another) {
                        client.giveUp(hold.claim, hold.token); // Which nobody asked for.
                    }
                    if (another
                            || LettuceLockClient.isError(cause, "WRONGTYPE")
                            || LettuceLockClient.isError(cause, "PARTIAL")) {
                        lose(Holds.GONE);
                    } else if (reply == null) {
                        hold.unbound = true;
                    }
                });
    }

    /** What a renewal asks for: the ttl where it is renewed, otherwise what is left. */
    private long leftMs() {
        return hold.renewed ? client.ttlMs() : hold.lease.leftMs();
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
            hold.renewed = false;
            hold.planRenewal(null);
        }
        return renewUntilItEnds(leaseMs)
                .whenComplete((held, failed) -> endRenewal(failed == null));
    }

    /** After a failure its owner relies on what was before. */
    private synchronized void endRenewal(boolean done) {
        renews &= !done;
        hold.renewed = renews;
        if (!done) {
            plan();
        }
    }

    /** At TRYAGAIN it asks again for as long as the lease lasts. */
    private synchronized CompletableFuture<Boolean> renewUntilItEnds(long leaseMs) {
        if (!isHeld()) {
            lose(Holds.ENDED);
            return CompletableFuture.completedFuture(false);
        }
        Lease.Sent sent = hold.lease.sends(leaseMs);
        return client.renew(hold.claim, hold.token, leaseMs)
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
     * @return false when it was not held any more. It fails with {@link IllegalArgumentException}
     *     for a time above the server's {@code lock.max-ttl}, and in the fallback with {@link
     *     ModuleMissingException}; the lock is given back at once then
     */
    public CompletableFuture<Boolean> unlock(Duration atLeast) {
        long leastMs = ThreadLock.leastMs(atLeast);
        if (!giveBack()) {
            return CompletableFuture.completedFuture(false);
        }
        return release(leastMs).exceptionallyCompose(failed -> {
            Throwable cause = LettuceLockClient.cause(failed);
            boolean tooLong = LettuceLockClient.isError(cause, Commands.TTL_TOO_LONG);
            if (!tooLong && !(cause instanceof ModuleMissingException)) {
                return CompletableFuture.failedFuture(cause);
            }
            // Its owner has no more way to it, so it must not stay.
            return release(0).handle((was, late) -> {
                throw tooLong ? Commands.leastTooLong(cause) : new CompletionException(cause);
            });
        });
    }

    /** Nothing at a second try: while the lease lasts, the first one has released it. */
    private CompletableFuture<Boolean> release(long leastMs) {
        long before = client.resends();
        BooleanSupplier lasts = () -> hold.lease.leftNanos() > 0;
        return client.release(hold.claim, hold.token, leastMs, lasts)
                .thenApply(held -> held || client.resends() != before && lasts.getAsBoolean());
    }

    /** Gives a job's lock back. A loss is no error here: it is told as any other is, and once. */
    CompletableFuture<Void> endJob() {
        if (!giveBack()) {
            return CompletableFuture.completedFuture(null);
        }
        return release(hold.leastMs).thenAccept(held -> {
            if (!held) {
                tellLost(Holds.GONE);
            }
        });
    }

    /** A loss that only the clock has seen does not end it before that either. */
    void keepAtLeast(long leastMs) {
        hold.leastMs = leastMs;
    }

    /** The server has prolonged it; false when that came too late. */
    private boolean prolonged(Lease.Sent sent) {
        if (!hold.lease.answered(sent)) {
            lose(Holds.ENDED);
            return false;
        }
        plan();
        return true;
    }

    private synchronized void plan() {
        if (hold.isOver()) {
            return;
        }
        hold.planEnding(client.later(hold.lease.leftNanos() + 1, this::seeEnd));
        hold.planRenewal(null);
        if (hold.renewed || hold.unbound) {
            long ttlNanos = TimeUnit.MILLISECONDS.toNanos(client.ttlMs());
            planRenewal(Math.min(ttlNanos, hold.lease.leftNanos()) / 3);
        }
    }

    private synchronized void planRenewal(long delayNanos) {
        if (!hold.isOver()) {
            hold.planRenewal(client.later(delayNanos, this::renew));
        }
    }

    private void seeEnd() {
        if (!isHeld()) {
            lose(hold.renewed ? Holds.NOT_RENEWED : Holds.ENDED);
        }
    }

    private synchronized void renew() {
        if (hold.isOver() || (!hold.renewed && !hold.unbound)) {
            return;
        }
        long leaseMs = leftMs();
        Lease.Sent sent = hold.lease.sends(leaseMs);
        client.renew(hold.claim, hold.token, leaseMs).whenComplete((held, failed) -> {
            if (failed == null && !held) {
                lose(Holds.GONE);
            } else if (!hold.renewed && !hold.unbound) {
                return; // Its owner has set a lease meanwhile.
            } else if (failed != null) {
                planRenewal(Holds.soonNanos(client.ttlMs()));
            } else if (prolonged(sent) && hold.unbound) {
                bind();
            }
        });
    }

    private void lose(String reason) {
        if (end(hold.lose())) {
            // A renewal that is still on its way must leave nothing that nobody would unlock.
            long leastMs = reason == Holds.GONE ? hold.leastMs : hold.leastMsAtItsEnd();
            client.release(hold.claim, hold.token, leastMs, () -> false);
            tellLost(reason);
        }
    }

    private void tellLost(String reason) {
        LostLock news = new LostLock(name(), null, fence(), reason);
        client.tellLost(news, () -> lost.complete(reason));
    }

    /** Nothing goes out from then on that the server would have after the release. */
    private synchronized boolean giveBack() {
        return end(hold.giveBack());
    }

    private boolean end(boolean ended) {
        client.holdsNoMore(this);
        return ended;
    }
}
