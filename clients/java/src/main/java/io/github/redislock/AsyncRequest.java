package io.github.redislock;

import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;

/**
 * One way to the lock of a {@link LettuceLockClient}. It asks once, and then waits for the message
 * that says how it ended. It asks again, with the same token and at the same place in the queue, at
 * the end of each slice, after a lost subscription, and after an error that passes.
 */
final class AsyncRequest<T> {
    static final long ENDLESS = Long.MAX_VALUE / 2;
    private static final long PACE_NANOS = TimeUnit.MILLISECONDS.toNanos(50);

    private final LettuceLockClient client;
    private final Function<AsyncHold, T> outcome;
    private final boolean waits;
    private final boolean endless;
    private final long deadlineNanos;
    private final CompletableFuture<T> result = new CompletableFuture<>();
    private final long leaseMs;
    final Claim claim;
    final String token = UUID.randomUUID().toString();

    private boolean over;
    private boolean held;

    /** The sending of what the server may have granted by: a later one may not have reached it. */
    private long sentNanos;

    /** Counts what was sent, so that only the answer to the last one plans what is next. */
    private int asked;

    /** When the first answer failed to come; 0 when the last one came. */
    private long outOfReachSince;

    private Throwable outOfReach;

    private Future<?> next;
    private Future<?> deadline;

    AsyncRequest(
            LettuceLockClient client,
            Claim claim,
            long waitNanos,
            long leaseMs,
            Function<AsyncHold, T> outcome) {
        this.client = client;
        this.claim = claim;
        this.leaseMs = leaseMs;
        this.outcome = outcome;
        this.waits = waitNanos > 0;
        this.endless = waitNanos == ENDLESS;
        this.deadlineNanos = System.nanoTime() + waitNanos;
    }

    CompletableFuture<T> begin() {
        // By its owner: a cancel, or a time-out of his. Otherwise it is over already.
        result.whenComplete((held, failed) -> giveUp(() -> {}));
        client.waits(this);
        if (waits) {
            synchronized (this) {
                deadline = client.later(deadlineNanos - System.nanoTime(), this::timeOut);
            }
        }
        if (client.isClosed()) {
            close();
        } else {
            ask();
        }
        return result;
    }

    /** Sends the request, or sends it again; an answer to an earlier one still counts. */
    synchronized void ask() {
        if (over) {
            return;
        }
        cancel(next);
        int number = ++asked;
        long now = System.nanoTime();
        sentNanos = number == 1 ? now : sentNanos;
        client.acquire(claim, token, ttlMs(), this::isWaiting)
                .whenComplete((reply, failed) -> answered(number, now, reply, failed));
    }

    private synchronized boolean isWaiting() {
        return waits && !over;
    }

    private void answered(int number, long askedNanos, Object reply, Throwable failed) {
        if (reply instanceof Long fence) {
            granted(fence, askedNanos);
            return;
        }
        synchronized (this) {
            if (over) {
                endUnseen();
                return;
            }
            if (number != asked) {
                return;
            }
            if (failed == null && waits) { // QUEUED, or the end of a slice
                outOfReachSince = 0;
                sentNanos = askedNanos;
                // One that blocked has waited already; one without an answer is told of nothing.
                plan(
                        reply == null
                                ? TimeUnit.MILLISECONDS.toNanos(Fallback.pauseMs())
                                : client.options().slice().toNanos());
                return;
            }
        }
        if (failed == null) {
            finish();
        } else {
            recover(LettuceLockClient.cause(failed));
        }
    }

    /** Asks again where that helps. */
    private void recover(Throwable failed) {
        boolean foreign = LettuceLockClient.isError(failed, "WRONGTYPE");
        if (foreign && !waits) {
            finish();
            return;
        }
        if (LettuceLockClient.isError(failed, "DEADLOCK")) {
            deadlock(failed.getMessage());
            return;
        }
        if (LettuceLockClient.isError(failed, "CANCELLED")) {
            fail(new LockCancelledException(claim.title()));
            return;
        }
        if (claim.several() && LettuceLockClient.isError(failed, "PARTIAL")) {
            // A grant whose answer was lost has ended in part meanwhile.
            client.giveUp(claim, token).whenComplete((was, cut) -> again());
            return;
        }
        long now = System.nanoTime();
        synchronized (this) {
            outOfReachSince = foreign ? 0 : outOfReachSince == 0 ? now : outOfReachSince;
            outOfReach = failed;
            boolean passes = foreign || LettuceLockClient.passes(failed);
            if (passes && (foreign || now - outOfReachSince <= patienceNanos())) {
                plan(PACE_NANOS);
                return;
            }
        }
        fail(failed);
    }

    /** Another server may take over, and until then a waiter has its own time to wait for that. */
    private long patienceNanos() {
        long mostNanos = endless ? Acquisition.FAILOVER_NANOS : Long.MAX_VALUE;
        return Math.max(reconnectNanos(), waits ? mostNanos : 0);
    }

    private long reconnectNanos() {
        return client.options().reconnect().toNanos();
    }

    private void deadlock(String text) {
        fail(new LockDeadlockException(claim.title(), text));
    }

    private CompletableFuture<Boolean> fail(Throwable why) {
        return giveUp(() -> result.completeExceptionally(why));
    }

    private synchronized void again() {
        plan(PACE_NANOS);
    }

    /** How the wait ended, by the channel. */
    void told(String event, long fence) {
        switch (event) {
            case "granted" -> granted(fence, sent());
            case "deadlock" -> deadlock("DEADLOCK found while it waited");
            case "cancelled" -> fail(new LockCancelledException(claim.title()));
            default -> again(); // It has no place any more, so it asks for a new one.
        }
    }

    /**
     * It was granted at any moment since it was asked for. After a long wait the lease is begun
     * anew, which also tells if it is over.
     */
    private void granted(long fence, long askedNanos) {
        long now = System.nanoTime();
        if (now - askedNanos <= TimeUnit.MILLISECONDS.toNanos(ttlMs()) / 10) {
            hold(fence, askedNanos);
            return;
        }
        client.renew(claim, token, ttlMs()).whenComplete((held, failed) -> {
            if (failed == null && held) {
                hold(fence, now);
            } else if (failed == null && claim.several()) {
                // Some of it may be held still.
                client.giveUp(claim, token).whenComplete((was, cut) -> again());
            } else {
                again();
            }
        });
    }

    private void hold(long fence, long leaseNanos) {
        synchronized (this) {
            if (over) {
                endUnseen();
                return;
            }
            if (Lease.isOver(leaseNanos, ttlMs())) {
                again(); // Others may have it already.
                return;
            }
            held = true;
            end();
        }
        AsyncHold hold =
                new AsyncHold(client, claim, token, fence, sent(), leaseNanos, leaseMs);
        client.run(() -> {
            if (!result.complete(outcome.apply(hold))) {
                hold.unlock();
            }
        });
    }

    /** What a request brought that the server had after the release that gave it up. */
    private void endUnseen() {
        if (!held && !client.isTold()) { // Only one that blocks has another connection than that.
            client.giveUp(claim, token);
        }
    }

    private long ttlMs() {
        return leaseMs == ThreadLock.RENEWED ? client.ttlMs() : leaseMs;
    }

    private void timeOut() {
        synchronized (this) {
            long now = System.nanoTime();
            if (outOfReachSince != 0 && now - outOfReachSince > reconnectNanos()) {
                fail(outOfReach);
                return;
            }
        }
        giveUp(() -> result.complete(outcome.apply(null)));
    }

    /** It was not to be had. */
    private void finish() {
        if (end()) {
            client.run(() -> result.complete(outcome.apply(null)));
        }
    }

    CompletableFuture<Boolean> close() {
        return fail(new IllegalStateException("the client was closed"));
    }

    /** Ends the place in the queue, or a hold that was granted unseen, and then says so. */
    private CompletableFuture<Boolean> giveUp(Runnable news) {
        if (!end()) {
            return CompletableFuture.completedFuture(false);
        }
        return client.giveUp(claim, token).whenComplete((was, failed) -> client.run(news));
    }

    private synchronized boolean end() {
        boolean ended = !over;
        over = true;
        cancel(next);
        cancel(deadline);
        client.waitsNoMore(this);
        return ended;
    }

    private synchronized long sent() {
        return sentNanos;
    }

    private void plan(long delayNanos) {
        if (!over) {
            cancel(next);
            next = client.later(delayNanos, this::ask);
        }
    }

    private static void cancel(Future<?> plan) {
        if (plan != null) {
            plan.cancel(false);
        }
    }
}
