package io.github.redislock;

import java.util.List;
import java.util.UUID;
import java.util.concurrent.*;
import java.util.concurrent.atomic.AtomicBoolean;
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
    /** What was sent, and the connection that it is bound to or waits on. */
    private final class Asked {
        final long sentNanos = System.nanoTime();
        final Lease.Pulse pulse = engine.driver.pulse;

        /** Whether it keeps a place. */
        boolean places;

        /** When its answer should be there. */
        long dueNanos = sentNanos;

        volatile Driver.Line line;
        private final AtomicBoolean closed = new AtomicBoolean();

        /** Without a grant. */
        volatile boolean isAnswered;

        /** Once, as another one may have the connection after that. */
        void close(boolean usable) {
            if (line != null && !closed.getAndSet(true)) {
                line.closing().accept(usable);
            }
        }
    }

    static final long ENDLESS = Long.MAX_VALUE / 2;

    /** What a failover may take, for a waiter whose wait has no end. */
    private static final long FAILOVER_NANOS = TimeUnit.MINUTES.toNanos(1);

    /** How long is long enough for the server to notice that a connection was closed. */
    private static final int LEAVE_TRIES = 100;

    /** The longest wait for the first answer of a server that was out of reach. */
    static final long FIRST_SLICE_MS = 1_000;

    private final Engine engine;
    private final Claim claim;
    private final String token;
    private final boolean renewed;
    private final long ttlMs;
    private final Hold reader;

    /** Null where the hold belongs to no thread. */
    private final Thread owner;

    private final long waitNanos;
    private final long deadlineNanos;

    /** When even a server that does not answer is not waited for any more. */
    private final long giveUpNanos;

    /** What the thread that waits is to do; null where there is none. */
    private final BlockingQueue<Runnable> steps;

    /** Asks: the thread that waits, or where there is none whoever plans it, as nothing blocks. */
    private final Executor thread;

    private final CompletableFuture<Hold> result = new CompletableFuture<>();
    private final Consumer<String> span;

    /** What was found in place of the lock, or with it, as it is early; null where nothing was. */
    volatile byte[] value;

    private volatile boolean over;
    private boolean held;
    private Future<?> next = Engine.done(null);

    /** What was sent last. Only the answer to that plans what is next. */
    private Asked last;

    /** The first that the server may have granted by. */
    private volatile Asked first;

    /** Whether it is granted, and asked for only by the connection that stays. */
    private volatile boolean binds;

    /** Whether the last answer was lost, so that the server may have granted what was not seen. */
    private boolean uncertain;

    /** Whether the server may keep a place in the queue for the token though nobody asks. */
    private boolean placed;

    /** When the first answer that did not come was due; 0 when all came. */
    private long outOfReachSince;

    private Throwable outOfReach;

    /**
     * With {@code reader} it converts that hold. One that is {@code owned} is driven by the thread
     * that calls {@link #await}, and has the hold belong to that, but for the lock of a value.
     */
    Acquire(
            Engine engine,
            Claim claim,
            long leaseMs,
            Hold reader,
            long waitNanos,
            boolean owned) {
        this.engine = engine;
        this.claim = claim;
        // A new token, so that nothing that is on its way for an earlier hold can touch this one.
        this.token = reader == null ? UUID.randomUUID().toString() : reader.token;
        this.renewed = leaseMs == Lease.RENEWED;
        boolean ever = renewed || reader != null && reader.renewed;
        long wantedMs = ever ? engine.ttlMs() : leaseMs;
        this.ttlMs = reader == null ? wantedMs : Math.max(wantedMs, reader.lease.leftMs());
        this.reader = reader;
        this.owner = owned && claim.result() == null ? Thread.currentThread() : null;
        this.steps = owned ? new LinkedBlockingQueue<>() : null;
        this.thread = owned ? steps::add : Runnable::run;
        this.waitNanos = Math.max(0, Math.min(waitNanos, ENDLESS));
        this.deadlineNanos = System.nanoTime() + this.waitNanos;
        this.giveUpNanos = deadlineNanos + engine.options.patienceNanos();
        this.span = engine.telemetry.begins("redis_lock.wait", claim, 0);
    }

    /** What is held then, or null when the lock could not be had in time. */
    CompletableFuture<Hold> begin() {
        engine.waiting.put(token, this);
        result.whenComplete((hold, failed) -> span.accept(outcome(hold, failed)));
        if (steps == null && waitNanos > 0 && waitNanos < ENDLESS) {
            // No thread of its own is kept by an answer that is late.
            Future<?> end = engine.later(waitNanos, this::timeOut);
            result.whenComplete((hold, failed) -> end.cancel(false));
        }
        thread.execute(this::ask);
        return result;
    }

    private String outcome(Hold hold, Throwable failed) {
        if (failed != null) {
            return "failed";
        }
        return hold != null ? "granted" : value != null ? "found" : "busy";
    }

    private synchronized void timeOut() {
        if (outOfReachSince == 0) {
            giveUp();
        } else {
            fail(outOfReach);
        }
    }

    /** Begins it, and does all that is to do in the calling thread, until it is over. */
    Hold await(boolean interruptible) throws InterruptedException {
        begin().whenComplete((hold, failed) -> steps.add(() -> {}));
        boolean flag = false;
        while (!result.isDone()) {
            try {
                steps.take().run(); // With no flag set, which would close the socket.
            } catch (InterruptedException interrupt) {
                flag |= !interruptible || over;
                if (interruptible) {
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
            throw Engine.thrown(failed.getCause());
        }
    }

    /** Asks again after that. */
    synchronized void plan(long delayNanos) {
        if (!over) {
            next.cancel(false);
            next = engine.at(delayNanos, () -> thread.execute(this::ask));
        }
    }

    private void ask() {
        Asked ask = new Asked();
        long leftNanos = binds ? 0 : deadlineNanos - ask.sentNanos;
        binds = false;
        boolean told = leftNanos > 0 && engine.listener != null && engine.listener.hears();
        boolean waitsHere = told || leftNanos > 0 && engine.fallback.isChosen();
        synchronized (this) {
            if (over) {
                return;
            }
            if (engine.closed) {
                fail(Engine.closed());
                return;
            }
            ask.places = waitsHere && !engine.fallback.isUsed();
            last = ask;
            first = uncertain ? first : ask;
        }
        Request request = Request.acquiring(claim, token, ttlMs, engine.options);
        request.keepMs = waitsHere ? engine.options.grace().toMillis() : 0;
        if (told) {
            // It asks again within a slice. A place that was left out of reach ends by itself: its
            // channel is there, and nobody listens for it.
            engine.listener.waitBy(request);
        }
        CompletableFuture<Driver.Line> opened =
                ask.places && !told ? engine.driver.open(endNanos(ask)) : null;
        if (opened != null) {
            // An answer soon says that a server which was out of reach is back.
            long mostMs = Math.min(engine.options.slice().toMillis(), engine.driver.mostBlockMs());
            mostMs = outOfReachSince == 0 ? mostMs : Math.min(mostMs, FIRST_SLICE_MS);
            // Rounded up, as BLOCK 0 would be for ever.
            request.blockMs = Math.min(mostMs, (leftNanos - 1) / 1_000_000 + 1);
            ask.dueNanos += TimeUnit.MILLISECONDS.toNanos(request.blockMs);
        }
        CompletableFuture<Object> sent = opened == null
                ? engine.send(request, endNanos(ask))
                : opened.thenCompose(line -> {
                    ask.line = line;
                    return over ? Engine.done(null) : line.sending().apply(request, endNanos(ask));
                });
        sent.whenComplete((reply, failed) -> answered(ask, reply, Engine.cause(failed)));
    }

    /** When the answer is waited for no longer: a server that is there would have given it. */
    private long endNanos(Asked ask) {
        long endNanos = ask.dueNanos + TimeUnit.MILLISECONDS.toNanos(engine.options.answerMs());
        return endNanos - giveUpNanos > 0 ? giveUpNanos : endNanos;
    }

    private void answered(Asked ask, Object reply, Throwable failed) {
        if (reply instanceof List<?> both && both.size() == 2) { // Lettuce has none for QUEUED.
            granted(ask, (Long) both.get(1), (byte[]) both.get(0));
            return;
        }
        if (reply instanceof Long fence) {
            granted(ask, fence, null);
            return;
        }
        ask.isAnswered = true;
        ask.close(engine.driver.isUsableAfter(failed));
        synchronized (this) {
            if (over) {
                if (ask.line != null && reader == null && !held) { // What comes after the release.
                    engine.giveUp(claim, token, 0);
                }
            } else if (ask == last && failed != null) {
                recover(failed, engine.driver.refusal(failed));
            } else if (ask == last && reply instanceof byte[] found) {
                placed = false; // It ended with this answer.
                value = found;
                giveUp();
            } else if (ask == last) {
                first = ask;
                placed |= ask.places;
                notNow(reply != null ? engine.options.slice().toNanos() : pauseNanos(ask));
            }
        }
    }

    /** The server has answered that it is not granted: asks again, unless the time is over. */
    private void notNow(long pauseNanos) {
        outOfReachSince = 0;
        uncertain = false;
        long leftNanos = deadlineNanos - System.nanoTime();
        if (leftNanos <= 0) {
            giveUp();
        } else {
            plan(Math.min(pauseNanos, leftNanos));
        }
    }

    private long pauseNanos(Asked ask) {
        if (engine.fallback.isUsed()) {
            // As all ask at a time of their own, none has the next word each time.
            return TimeUnit.MILLISECONDS.toNanos(ThreadLocalRandom.current().nextLong(20, 80));
        }
        // Also where it waits at the server: a guard says no at once to a token that holds all by
        // an unseen grant. Without a place it may wait from now on.
        long sinceNanos = System.nanoTime() - ask.sentNanos;
        return ask.places ? Math.max(0, Engine.PACE_NANOS - sinceNanos) : 0;
    }

    /** Asks again where that helps. */
    private void recover(Throwable failed, String refusal) {
        switch (Replies.word(refusal)) {
            case "DEADLOCK" -> deadlock(refusal);
            case "CANCELLED" -> fail(new LockCancelledException(claim.title()));
            case "CROSSSLOT" -> fail(Replies.crossSlot(claim, failed));
            // What is left of a grant that was not seen is given back before it is asked for again.
            case "PARTIAL" -> engine.giveUp(claim, token, 0).whenComplete((was, cut) -> plan(0));
            default -> {
                if (claim.result() == null && Replies.isError(refusal, "WRONGTYPE")) {
                    notNow(Engine.PACE_NANOS);
                } else if (Replies.isError(refusal, Replies.TTL_TOO_LONG)) {
                    fail(Replies.tooLong(Replies.LEASE, failed));
                } else if (engine.kind(failed) == Replies.Kind.FINAL) {
                    fail(failed);
                } else {
                    passes(failed, refusal == null);
                }
            }
        }
    }

    private void passes(Throwable failed, boolean unanswered) {
        long now = System.nanoTime();
        boolean isFirst = outOfReachSince == 0;
        uncertain |= unanswered;
        outOfReach = failed;
        // What was only refused has changed nothing.
        placed |= last.places && engine.kind(failed) == Replies.Kind.ELSEWHERE;
        if (isFirst) {
            outOfReachSince = now - last.dueNanos > 0 ? last.dueNanos : now;
        }
        boolean late = !unanswered && waitNanos > 0
                ? now - deadlineNanos >= 0
                : !isFirst && now - outOfReachSince > patienceNanos()
                        // No time for another answer, which would hide what this one says.
                        || now + Engine.PACE_NANOS - giveUpNanos >= 0;
        if (late) {
            if (unanswered) { // There is nobody to tell before this ends.
                uncertain = false;
                placed = false;
                if (reader == null) {
                    // A server that was silent may read both later: the release behind the request.
                    engine.work(() -> leave(true));
                }
            }
            fail(failed);
        } else {
            // A connection that was idle may have been dead for long: the first new try needs no
            // pause, and no time to reconnect.
            plan(isFirst && unanswered ? 0 : Engine.PACE_NANOS);
        }
    }

    /** Another server may take over, and until then a waiter has its own time to wait for that. */
    private long patienceNanos() {
        long reconnectNanos = engine.options.reconnect().toNanos();
        if (!engine.driver.failsOver || waitNanos == 0) {
            return reconnectNanos;
        }
        return Math.max(reconnectNanos, waitNanos == ENDLESS ? FAILOVER_NANOS : ENDLESS);
    }

    private void deadlock(String text) {
        if (waitNanos == ENDLESS || steps == null) {
            fail(new LockDeadlockException(claim.title(), text));
        } else {
            giveUp();
        }
    }

    /** How the wait ended, by the channel. */
    void told(String event, long fence) {
        switch (event) {
            case "granted" -> granted(first, fence, null);
            case "deadlock" -> deadlock("DEADLOCK found while it waited");
            case "cancelled" -> fail(new LockCancelledException(claim.title()));
            default -> plan(0); // It has no place any more, so it asks for a new one.
        }
    }

    /**
     * It was granted at any moment since it was asked for. After a long wait the lease is begun
     * anew, which also tells if it is over. One that lingers is asked for once more, which binds it
     * to the connection that stays.
     */
    private void granted(Asked ask, long fence, byte[] early) {
        long now = System.nanoTime();
        synchronized (this) {
            uncertain = true;
            placed = true;
        }
        ask.close(true);
        if (ask.line != null && engine.lingerMs() >= 0 && !over) {
            binds = true;
            plan(0);
            return;
        }
        if (now - ask.sentNanos <= TimeUnit.MILLISECONDS.toNanos(ttlMs) / 10) {
            deliver(fence, early, ask.sentNanos, ask.pulse);
            return;
        }
        engine.ofAll(claim, name -> Request.ofHold("LOCK.RENEW", name, token, ttlMs))
                .whenComplete((held, failed) -> {
                    if (failed == null && held) {
                        deliver(fence, early, now, ask.pulse);
                    } else {
                        plan(0);
                    }
                });
    }

    /** Its lease is surely not over-estimated from {@code sentNanos} on, with that connection. */
    private void deliver(long fence, byte[] early, long sentNanos, Lease.Pulse pulse) {
        synchronized (this) {
            if (held) {
                return; // It was told of it twice.
            }
            if (!over && Lease.isOver(sentNanos, ttlMs)) {
                notNow(0); // Others may have it already.
                return;
            }
            if (!over && engine.closed && reader == null) { // Nobody would renew or unlock it.
                fail(Engine.closed());
                return;
            }
            held = end();
        }
        if (held) {
            value = early;
            result.complete(hold(fence, sentNanos, pulse));
        } else {
            leave(false); // Nobody wants it any more.
        }
    }

    /** The reader's, if it was converted, or a new one. Nobody looks after it yet. */
    private Hold hold(long fence, long sentNanos, Lease.Pulse pulse) {
        boolean same = reader != null && reader.fence == fence && !reader.isOver();
        if (reader != null && !same) {
            engine.keeper.lose(reader, Keeper.NO_WRITER);
        }
        // In the fallback it does not linger.
        long lingerMs = fence == 0 ? -1 : engine.lingerMs();
        Lease lease = new Lease(System::nanoTime, lingerMs, first.sentNanos);
        Hold hold = same ? reader : new Hold(claim.held(), owner, token, fence, lease);
        hold.renewed |= renewed;
        hold.lease.begin(sentNanos, ttlMs);
        hold.lease.bind(pulse);
        hold.whenOver =
                same ? hold.whenOver : engine.telemetry.begins("redis_lock.hold", claim, fence);
        return hold;
    }

    /**
     * What a closing client waits for, but not for long. A conversion would end the hold that is
     * there.
     */
    CompletableFuture<?> close() {
        placed |= reader == null;
        return fail(Engine.closed())
                .completeOnTimeout(null, engine.options.patienceNanos(), TimeUnit.NANOSECONDS)
                .whenComplete((left, outOfReach) -> { // Out of reach the grace ends it.
                    if (last != null) {
                        last.close(false);
                    }
                });
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
        boolean unanswered;
        synchronized (this) {
            unanswered = uncertain || isUnderWay();
            if (!end()) {
                return Engine.done(null);
            }
        }
        return (unanswered || placed ? leave(unanswered) : Engine.done(null))
                // Out of reach the lease or the grace ends it.
                .whenComplete((left, outOfReach) -> news.run());
    }

    private boolean isUnderWay() {
        return last != null && !last.isAnswered;
    }

    private boolean end() {
        boolean ended = !over;
        over = true;
        next.cancel(false);
        engine.waiting.remove(token, this);
        // A release ends the wait of another one, whose last answer then tells that it has come.
        if (reader != null && isUnderWay()) {
            last.close(false);
        }
        return ended;
    }

    /** A server reads its connections in no order: what has no answer may be behind the release. */
    private CompletableFuture<?> leave(boolean unanswered) {
        if (reader != null && !reader.isOver()) {
            return leaveAsReader(LEAVE_TRIES);
        }
        CompletableFuture<Boolean> left = engine.giveUp(claim, token, 0);
        return unanswered ? left.thenCompose(any -> leave(false)) : left;
    }

    /**
     * The server may not have noticed the closed connection yet. Until then the place stays, and is
     * granted to a reader that does not know of it, or later keeps other readers out for its grace.
     */
    private CompletableFuture<Boolean> leaveAsReader(int tries) {
        return engine.info(claim.name(), "waiters")
                .thenApply(waiters -> String.valueOf(waiters).contains(token))
                .exceptionally(refused -> false) // To a user who may not ask.
                .thenCompose(waits -> engine.keeper
                        .restoreReader(reader, Keeper.NO_WRITER)
                        .thenCompose(held -> {
                            if (!held) {
                                return engine.giveUp(claim, token, 0);
                            }
                            if (!waits || tries == 0 || engine.closed) {
                                return Engine.done(true);
                            }
                            Executor soon = CompletableFuture.delayedExecutor(
                                    Engine.PACE_NANOS / 10, TimeUnit.NANOSECONDS, engine::work);
                            return CompletableFuture.runAsync(() -> {}, soon)
                                    .thenCompose(any -> leaveAsReader(tries - 1));
                        }));
    }
}
