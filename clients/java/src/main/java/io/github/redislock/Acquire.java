package io.github.redislock;

import java.util.List;
import java.util.concurrent.*;
import java.util.function.Consumer;

/**
 * One way to the lock: asks, always with the same token and at the same place in the queue, until
 * the lock is granted, the time is over, or nobody wants it any more. It waits for a message, on a
 * connection of its own in slices, or by asking again and again. Leaves nothing behind when it
 * fails.
 *
 * <p>It is driven by answers and by the clock, or by the thread that waits for it.
 */
final class Acquire {
    /**
     * A grant, a moment before it, the one from which its lease is surely not over-estimated, and
     * the connection that it is bound to. With a value and without a fence nothing is held, with
     * both the value is early.
     */
    record Grant(
            long fence, long askedNanos, long sentNanos, Lease.Pulse pulse, byte[] value) {}

    static final long ENDLESS = Long.MAX_VALUE / 2;

    /** What a failover may take, for a waiter whose wait has no end. */
    static final long FAILOVER_NANOS = TimeUnit.MINUTES.toNanos(1);

    /** How long is long enough for the server to notice that a connection was closed. */
    private static final int LEAVE_TRIES = 100;

    /** The longest wait for the first answer of a server that was out of reach. */
    private static final long FIRST_SLICE_MS = 1_000;

    private final Engine engine;
    private final Driver driver;
    private final LockOptions options;
    final Claim claim;
    final String token;
    private final long ttlMs;
    private final Hold reader;
    private final boolean owned;
    private final boolean waits;
    private final boolean endless;
    private final long deadlineNanos;

    /** When even a server that does not answer is not waited for any more. */
    private final long giveUpNanos;

    private final CompletableFuture<Grant> result = new CompletableFuture<>();
    private final Consumer<String> span;

    private boolean over;
    private boolean held;
    private boolean underWay;

    /** Whether what was sent last keeps a place. */
    private boolean places;

    private Driver.Line line;
    private Future<?> next;
    private boolean planned;
    private long nextNanos;

    /** Counts what was sent, so that only the answer to the last one plans what is next. */
    private int asked;

    private boolean answered;

    /** Whether the last answer was lost, so that the server may have granted what was not seen. */
    private boolean uncertain;

    /** Whether the server may keep a place in the queue for the token though nobody asks. */
    private boolean placed;

    /** The sending of the first that the server may have granted by. */
    private long askedNanos;

    private Lease.Pulse pulse;

    /** The early value that came with the fence. */
    private byte[] early;

    /** When the answer to what was sent last should be there. */
    private long dueNanos;

    /** When the first answer that did not come was due; 0 when all came. */
    private long outOfReachSince;

    private Throwable outOfReach;

    /**
     * With {@code reader} it converts that hold; otherwise {@code token} is new. One that is {@code
     * owned} is driven by the thread that calls {@link #await}.
     */
    Acquire(
            Engine engine,
            Claim claim,
            String token,
            long ttlMs,
            Hold reader,
            long waitNanos,
            boolean owned) {
        this.engine = engine;
        this.driver = engine.driver;
        this.options = engine.options;
        this.claim = claim;
        this.token = token;
        this.ttlMs = ttlMs;
        this.reader = reader;
        this.owned = owned;
        this.waits = waitNanos > 0;
        this.endless = waitNanos >= ENDLESS;
        this.deadlineNanos = System.nanoTime() + Math.max(0, Math.min(waitNanos, ENDLESS));
        this.giveUpNanos = deadlineNanos + options.patienceNanos();
        this.span = engine.telemetry.waits(claim);
    }

    /** The grant, or null when the lock could not be had in time. */
    CompletableFuture<Grant> begin() {
        engine.waiting.add(this);
        if (engine.listener != null) {
            engine.listener.add(this);
        }
        result.whenComplete((grant, failed) -> {
            boolean found = failed == null && grant != null && grant.pulse() == null;
            span.accept(failed != null
                    ? "failed"
                    : grant == null ? "busy" : found ? "found" : "granted");
            wake();
        });
        if (owned) {
            plan(0);
            return result;
        }
        if (waits && !endless) { // No thread of its own is kept by an answer that is late.
            Future<?> end = engine.later(deadlineNanos - System.nanoTime(), this::timeOut);
            result.whenComplete((grant, failed) -> end.cancel(false));
        }
        ask();
        return result;
    }

    private void timeOut() {
        synchronized (this) {
            if (outOfReachSince != 0
                    && System.nanoTime() - outOfReachSince > options.reconnect().toNanos()) {
                fail(outOfReach);
                return;
            }
        }
        giveUp();
    }

    private synchronized void wake() {
        notifyAll();
    }

    /** Begins it, and does all that is to do in the calling thread, until it is over. */
    Grant await(boolean interruptible) throws InterruptedException {
        boolean flag = false;
        boolean cut = false;
        begin();
        while (!result.isDone()) {
            try {
                if (Thread.interrupted()) { // A set flag would close the socket.
                    throw new InterruptedException();
                }
                if (awaitNext()) {
                    ask();
                }
            } catch (InterruptedException interrupt) {
                flag |= !interruptible || cut;
                if (interruptible && !cut) {
                    cut = true;
                    fail(new InterruptedException("while waiting for " + claim.title()));
                }
            }
        }
        if (flag) {
            Thread.currentThread().interrupt();
        }
        try {
            return result.get();
        } catch (ExecutionException failed) {
            if (failed.getCause() instanceof InterruptedException interrupt) {
                throw interrupt;
            }
            throw Engine.thrown(failed.getCause());
        }
    }

    /** Whether it is time to ask; false where it is over. */
    private synchronized boolean awaitNext() throws InterruptedException {
        while (!result.isDone()) {
            long leftNanos = planned ? nextNanos - System.nanoTime() : Long.MAX_VALUE;
            if (leftNanos <= 0) {
                planned = false;
                return true;
            }
            TimeUnit.NANOSECONDS.timedWait(this, Math.min(leftNanos, FAILOVER_NANOS));
        }
        return false;
    }

    private synchronized void plan(long delayNanos) {
        if (over) {
            return;
        }
        if (owned) {
            planned = true;
            nextNanos = System.nanoTime() + delayNanos;
            notifyAll();
        } else {
            cancelNext();
            next = engine.later(delayNanos, this::ask);
        }
    }

    private void cancelNext() {
        if (next != null) {
            next.cancel(false);
        }
    }

    /** Asks at once, because a message or a place may have been lost. */
    void again() {
        plan(0);
    }

    private void ask() {
        int number;
        long sentNanos = System.nanoTime();
        long leftNanos = deadlineNanos - sentNanos;
        Request request;
        Lease.Pulse bound = engine.pulse();
        synchronized (this) {
            if (over) {
                return;
            }
            if (engine.isClosed()) {
                fail(closed());
                return;
            }
            if (answered && leftNanos <= 0) {
                giveUp();
                return;
            }
            number = ++asked;
            answered = false;
            underWay = true;
            if (!uncertain) {
                askedNanos = sentNanos;
                pulse = bound;
            }
            request = Request.acquiring(claim, token, ttlMs, options);
            dueNanos = sentNanos;
        }
        boolean told = engine.listener != null && engine.listener.hears() && leftNanos > 0;
        boolean waitsHere = leftNanos > 0 && (told || engine.fallback.isChosen());
        request.keepMs = waitsHere ? options.grace().toMillis() : 0;
        places = waitsHere && !engine.fallback.isUsed();
        if (told) {
            // It asks again within a slice. A place that was left out of reach ends by itself: its
            // channel is there, and nobody listens for it.
            engine.listener.waitBy(request);
        }
        CompletableFuture<Driver.Line> opened = places && !told ? driver.open(endNanos()) : null;
        if (opened != null) {
            // An answer soon says that a server which was out of reach is back.
            long mostMs = Math.min(options.slice().toMillis(), driver.mostBlockMs());
            mostMs = outOfReachSince == 0 ? mostMs : Math.min(mostMs, FIRST_SLICE_MS);
            // Rounded up, as BLOCK 0 would be for ever.
            request.blockMs = Math.min(mostMs, (leftNanos - 1) / 1_000_000 + 1);
            dueNanos = sentNanos + TimeUnit.MILLISECONDS.toNanos(request.blockMs);
        }
        Driver.Line[] own = new Driver.Line[1];
        (opened == null
                        ? engine.send(request, endNanos())
                        : opened.thenCompose(made -> {
                            own[0] = made;
                            return sendBy(made, request);
                        }))
                .whenComplete((reply, failed) -> {
                    synchronized (this) {
                        line = line == own[0] ? null : line;
                    }
                    answered(number, sentNanos, bound, own[0], reply, failed);
                });
    }

    private CompletableFuture<Object> sendBy(Driver.Line own, Request request) {
        synchronized (this) {
            if (over) {
                return CompletableFuture.completedFuture(null);
            }
            line = own;
        }
        return own.send(request, endNanos());
    }

    /** When the answer is waited for no longer: a server that is there would have given it. */
    private long endNanos() {
        long endNanos = dueNanos + TimeUnit.MILLISECONDS.toNanos(options.answerMs());
        return endNanos - giveUpNanos > 0 ? giveUpNanos : endNanos;
    }

    private void answered(
            int number,
            long sentNanos,
            Lease.Pulse bound,
            Driver.Line own,
            Object reply,
            Throwable failed) {
        Throwable cause = Engine.cause(failed);
        String refusal = driver.refusal(cause);
        boolean usable = failed == null || refusal != null && !Replies.isDemoted(refusal);
        if (reply instanceof List<?> both && both.size() == 2) { // Lettuce has none for QUEUED.
            synchronized (this) {
                early = (byte[]) both.get(0);
            }
            granted((Long) both.get(1), sentNanos, bound, own);
            return;
        }
        if (reply instanceof Long fence) {
            granted(fence, sentNanos, bound, own);
            return;
        }
        if (own != null) {
            own.close(usable);
        }
        synchronized (this) {
            underWay &= number != asked;
            if (over) {
                if (own != null && reader == null && !held) { // What comes after the release.
                    engine.giveUp(claim, token, 0);
                }
                return;
            }
            if (number != asked) {
                return;
            }
            if (failed != null) {
                recover(cause, refusal);
                return;
            }
            if (reply instanceof byte[] value) {
                placed = false; // It ended with this answer.
                finish(() -> result.complete(new Grant(0, 0, 0, null, value)));
                return;
            }
            askedNanos = sentNanos;
            pulse = bound;
            placed |= places;
            boolean queued = reply != null;
            notNow(queued ? options.slice().toNanos() : pauseNanos(own != null, sentNanos));
        }
    }

    /** The server has answered that it is not granted: asks again, unless the time is over. */
    private void notNow(long pauseNanos) {
        answered = true;
        outOfReachSince = 0;
        uncertain = false;
        long leftNanos = deadlineNanos - System.nanoTime();
        if (leftNanos <= 0) {
            giveUp();
        } else {
            plan(Math.min(pauseNanos, leftNanos));
        }
    }

    private long pauseNanos(boolean blocked, long sentNanos) {
        if (engine.fallback.isUsed()) {
            return TimeUnit.MILLISECONDS.toNanos(Fallback.pauseMs());
        }
        if (blocked) {
            // A guard says no at once to one that waits, if its token holds all by an unseen grant.
            return Math.max(0, Math.min(Engine.pace(), dueNanos - sentNanos)
                    - (System.nanoTime() - sentNanos));
        }
        return asked == 1 ? 0 : Engine.pace(); // From now on it may wait at the server.
    }

    /** Asks again where that helps. */
    private void recover(Throwable failed, String refusal) {
        long now = System.nanoTime();
        if (claim.result() == null && Replies.isError(refusal, "WRONGTYPE")) {
            placed = false; // It ended when the other one's value was written.
            notNow(Engine.pace());
        } else if (claim.several() && Replies.isError(refusal, "PARTIAL")) {
            // A grant whose answer was lost has ended in part meanwhile.
            begunAnew();
        } else if (Replies.isError(refusal, "DEADLOCK")) {
            deadlock(refusal);
        } else if (Replies.isError(refusal, "CANCELLED")) {
            fail(new LockCancelledException(claim.title()));
        } else if (Replies.isError(refusal, Replies.TTL_TOO_LONG)) {
            fail(Replies.tooLong(failed));
        } else if (Replies.isError(refusal, "CROSSSLOT")) {
            fail(Replies.crossSlot(claim, failed));
        } else if (engine.kind(failed) == Replies.Kind.FINAL) {
            fail(failed);
        } else {
            passes(failed, refusal, now);
        }
    }

    private void passes(Throwable failed, String refusal, long now) {
        boolean unanswered = refusal == null;
        boolean first = outOfReachSince == 0;
        uncertain |= unanswered;
        outOfReach = failed;
        // What was only refused has changed nothing.
        placed |= places && engine.kind(failed) == Replies.Kind.ELSEWHERE;
        if (first) {
            outOfReachSince = now - dueNanos > 0 ? dueNanos : now;
        }
        boolean late = !unanswered && waits
                ? now - deadlineNanos >= 0
                : !first && now - outOfReachSince > patienceNanos() || now - giveUpNanos >= 0;
        if (late) {
            if (unanswered) { // There is nobody to tell.
                uncertain = false;
                placed = false;
            }
            fail(failed);
        } else {
            // A connection that was idle may have been dead for long: the first new try needs no
            // pause.
            plan(first && unanswered ? 0 : Engine.pace());
        }
    }

    /** Another server may take over, and until then a waiter has its own time to wait for that. */
    private long patienceNanos() {
        long mostNanos = endless ? FAILOVER_NANOS : Long.MAX_VALUE;
        return Math.max(
                options.reconnect().toNanos(), driver.failsOver() && waits ? mostNanos : 0);
    }

    /** A hold that ended in part, or unseen, is given back before it is asked for again. */
    private void begunAnew() {
        uncertain = false;
        placed = false;
        engine.giveUp(claim, token, 0).whenComplete((was, cut) -> plan(0));
    }

    private void deadlock(String text) {
        if (endless || !owned) {
            fail(new LockDeadlockException(claim.title(), text));
        } else {
            giveUp();
        }
    }

    /** How the wait ended, by the channel. */
    void told(String event, long fence) {
        switch (event) {
            case "granted" -> {
                long sentNanos;
                Lease.Pulse bound;
                synchronized (this) {
                    sentNanos = askedNanos;
                    bound = pulse;
                }
                granted(fence, sentNanos, bound, null);
            }
            case "deadlock" -> deadlock("DEADLOCK found while it waited");
            case "cancelled" -> fail(new LockCancelledException(claim.title()));
            default -> again(); // It has no place any more, so it asks for a new one.
        }
    }

    /**
     * It was granted at any moment since it was asked for. After a long wait the lease is begun
     * anew, which also tells if it is over. One that lingers is bound to the connection that stays
     * before the one of its wait may be closed.
     */
    private void granted(long fence, long sentNanos, Lease.Pulse bound, Driver.Line own) {
        long now = System.nanoTime();
        synchronized (this) {
            uncertain = true;
        }
        if (own != null && engine.lingerMs() >= 0) {
            Lease.Pulse kept = engine.pulse();
            engine.send(Request.acquiring(claim.held(), token, ttlMs, options))
                    .whenComplete((reply, failed) -> {
                        own.close(true);
                        if (failed == null && reply instanceof Long same && same == fence) {
                            deliver(fence, now, kept);
                        } else if (failed == null && reply == null) {
                            // Not now, so the next renewal does it.
                            deliver(fence, sentNanos, new Lease.Pulse(-1, now));
                        } else {
                            begunAnew();
                        }
                    });
            return;
        }
        if (own != null) {
            own.close(true);
        }
        if (now - sentNanos <= TimeUnit.MILLISECONDS.toNanos(ttlMs) / 10) {
            deliver(fence, sentNanos, bound);
            return;
        }
        engine.ofAll(claim, name -> Request.renewing(name, token, ttlMs))
                .whenComplete((held, failed) -> {
                    if (failed == null && held) {
                        deliver(fence, now, bound);
                    } else if (failed == null && claim.several()) {
                        begunAnew(); // Some of it may be held still.
                    } else {
                        plan(0);
                    }
                });
    }

    private void deliver(long fence, long leaseNanos, Lease.Pulse bound) {
        Grant grant;
        synchronized (this) {
            if (held) {
                return; // It was told of it twice.
            }
            boolean refused = engine.isClosed() && reader == null;
            if (!over && Lease.isOver(leaseNanos, ttlMs)) {
                answered = true;
                plan(0); // Others may have it already.
                return;
            }
            if (!over && refused) {
                fail(closed());
                return;
            }
            grant = new Grant(fence, askedNanos, leaseNanos, bound, early);
            held = end();
            if (!held) {
                leave(); // Nobody wants it any more.
                return;
            }
        }
        result.complete(grant);
    }

    private RuntimeException closed() {
        return owned
                ? driver.failure("the client was closed")
                : new IllegalStateException("the client was closed");
    }

    /** What a closing client waits for. A conversion would end the hold that is there. */
    CompletableFuture<?> close() {
        if (reader == null) {
            placed = true;
        }
        return fail(closed());
    }

    /** In vain, or by its owner, who has completed the future in another way. */
    void giveUp() {
        finish(() -> result.complete(null));
    }

    private CompletableFuture<?> fail(Throwable why) {
        return finish(() -> result.completeExceptionally(why));
    }

    /** Ends the place in the queue, or a hold that was granted unseen, and then says so. */
    private CompletableFuture<?> finish(Runnable news) {
        boolean leaves;
        synchronized (this) {
            // What it sent last may come to the server after the release, and has no answer yet.
            leaves = uncertain || placed || underWay;
            if (!end()) {
                return CompletableFuture.completedFuture(null);
            }
        }
        return (leaves ? leave() : CompletableFuture.completedFuture(null))
                .handle((left, outOfReach) -> {
                    news.run(); // Out of reach the lease or the grace ends it.
                    return null;
                });
    }

    private boolean end() {
        boolean ended = !over;
        over = true;
        cancelNext();
        engine.waiting.remove(this);
        if (engine.listener != null) {
            engine.listener.remove(this);
        }
        // A release ends the wait of another one, whose last answer then tells that it has come.
        if (line != null && reader != null) {
            line.close(false);
            line = null;
        }
        return ended;
    }

    private CompletableFuture<?> leave() {
        return reader == null || reader.isOver()
                ? engine.giveUp(claim, token, 0)
                : leaveAsReader(LEAVE_TRIES);
    }

    /**
     * The server may not have noticed the closed connection yet, and then grants to a reader that
     * wants to become the writer.
     */
    private CompletableFuture<?> leaveAsReader(int tries) {
        return engine.isWaiting(claim.name(), token)
                .thenCompose(waits -> engine.keeper
                        .restoreReader(reader, "it ended while it waited to become the writer")
                        .thenCompose(held -> {
                            if (!waits || !held || tries == 0) {
                                return CompletableFuture.completedFuture(null);
                            }
                            CompletableFuture<Object> later = new CompletableFuture<>();
                            engine.later(Engine.pace() / 10, () -> leaveAsReader(tries - 1)
                                    .whenComplete((left, failed) -> later.complete(null)));
                            return later;
                        }));
    }
}
