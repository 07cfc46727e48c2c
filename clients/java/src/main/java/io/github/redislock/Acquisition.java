package io.github.redislock;

import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;

/**
 * One way to the lock: asks in slices, always with the same token and at the same place in the
 * queue, until the lock is granted, the time is over or, where that is wanted, the thread is
 * interrupted. Leaves nothing behind when it fails.
 */
final class Acquisition {
    /**
     * A grant, a moment before it, and the one from which its lease is surely not over-estimated.
     */
    record Grant(long fence, long askedNanos, long sentNanos) {}

    /** What a failover may take, for a waiter whose wait has no end. */
    static final long FAILOVER_NANOS = TimeUnit.MINUTES.toNanos(1);

    /** How long is long enough for the server to notice that a connection was closed. */
    private static final int ABANDON_TRIES = 100;

    /** The longest wait for the first answer of a server that was out of reach. */
    private static final long FIRST_SLICE_MS = 1_000;

    private final Holds holds;
    private final Commands commands;
    private final LockOptions options;
    private final Claim claim;
    private final String token;
    private final long ttlMs;
    private final Hold reader;
    private final boolean interruptible;

    /** Whether the last answer was lost, so that the server may have granted what was not seen. */
    private boolean uncertain;

    /** The sending of the first that the server may have granted by. */
    private long askedNanos;

    /** Whether the server may keep a place in the queue for the token though nobody asks. */
    private boolean placed;

    /** When the answer to what was sent last should be there. */
    private long dueNanos;

    /** When the first answer that did not come was due; 0 when all came. */
    private long outOfReachSince;

    private boolean endless;

    /** When even a server that does not answer is not waited for any more. */
    private long giveUpNanos;

    private boolean interrupted;

    /** With {@code reader} it converts that hold; otherwise {@code token} is new. */
    Acquisition(
            Holds holds,
            Claim claim,
            String token,
            long ttlMs,
            Hold reader,
            boolean interruptible) {
        this.holds = holds;
        this.commands = holds.commands;
        this.options = holds.options;
        this.claim = claim;
        this.token = token;
        this.ttlMs = ttlMs;
        this.reader = reader;
        this.interruptible = interruptible;
    }

    /**
     * Waits for up to {@code waitNanos}, not at all with 0; null when the lock was not to be had.
     */
    Grant await(long waitNanos) throws InterruptedException {
        Grant grant = null;
        holds.waiting.add(this);
        try {
            grant = ask(waitNanos);
        } finally {
            holds.waiting.remove(this);
            if (uncertain || placed) {
                abandon();
            }
            if (interrupted) {
                Thread.currentThread().interrupt();
            }
        }
        // Looked at when a close that begins now does not find it among those that wait any more.
        if (grant != null && !isConversion() && holds.isClosed()) {
            refuse();
        }
        return grant;
    }

    /** What the close has given back belongs to others now; what it missed is given back here. */
    private void refuse() {
        RuntimeException closed = closed();
        try {
            release();
        } catch (RuntimeException outOfReach) {
            closed.addSuppressed(outOfReach); // Then the lease ends it.
        }
        throw closed;
    }

    private RuntimeException closed() {
        return commands.wire().failure("the client was closed");
    }

    private Grant ask(long waitNanos) throws InterruptedException {
        long startNanos = System.nanoTime();
        endless = waitNanos == Long.MAX_VALUE;
        // Far away for a wait without end, but within reach of nanoTime's arithmetic.
        giveUpNanos =
                startNanos + Math.min(waitNanos, Long.MAX_VALUE / 2) + options.patienceNanos();
        while (true) {
            // A set flag would close the socket, so it is taken down and kept.
            noteInterrupt();
            if (holds.isClosed()) {
                throw closed();
            }
            long leftNanos = waitNanos - (System.nanoTime() - startNanos);
            boolean answered = true;
            try {
                Grant grant = askOnce(leftNanos);
                if (grant != null) {
                    return grant;
                }
            } catch (RuntimeException failed) {
                answered = recover(failed, leftNanos);
            }
            if (answered && waitNanos - (System.nanoTime() - startNanos) <= 0) {
                return null;
            }
        }
    }

    private Grant askOnce(long leftNanos) throws InterruptedException {
        // An answer soon says that a server which was out of reach is back.
        long sliceMs = options.slice().toMillis();
        long mostMs = outOfReachSince == 0 ? sliceMs : Math.min(sliceMs, FIRST_SLICE_MS);
        // Rounded up, as BLOCK 0 would be for ever.
        long blockMs = leftNanos <= 0 ? 0 : Math.min(mostMs, (leftNanos - 1) / 1_000_000 + 1);
        long sentNanos = System.nanoTime();
        askedNanos = uncertain ? askedNanos : sentNanos;
        Long fence = answered(blockMs, () -> askServer(blockMs));
        // From here on a hold is there to be given back if anything fails before it is handed out.
        uncertain = fence != null;
        placed &= fence == null;
        // A guard says no at once to one that waits, if its token holds all by an unseen grant.
        long soonestNanos = TimeUnit.MILLISECONDS.toNanos(Math.min(Wire.PACE_MS, blockMs));
        long earlyNanos = soonestNanos - (System.nanoTime() - sentNanos);
        if (fence == null && earlyNanos > 0) {
            pause(earlyNanos / 1_000_000 + 1);
        }
        // It was granted at any moment of the wait. After a long one the lease is begun anew, which
        // also tells if it is over.
        if (fence != null
                && System.nanoTime() - sentNanos > TimeUnit.MILLISECONDS.toNanos(ttlMs) / 10) {
            sentNanos = System.nanoTime();
            if (!answered(0, () -> commands.renew(claim, token, ttlMs))) {
                fence = null;
                if (claim.several()) {
                    release(); // Some of it may be held still.
                }
            }
        }
        outOfReachSince = 0;
        if (fence != null && Lease.isOver(sentNanos, ttlMs)) {
            return null; // Others may have it already. What is left of it is asked for, or released.
        }
        uncertain = false;
        return fence == null ? null : new Grant(fence, askedNanos, sentNanos);
    }

    private Long askServer(long blockMs) {
        if (blockMs == 0) {
            return commands.tryAcquire(claim, token, ttlMs);
        }
        long keepMs = options.grace().toMillis();
        try {
            Long fence = commands.acquire(claim, token, ttlMs, blockMs, keepMs);
            placed |= keepMs > 0;
            return fence;
        } catch (RuntimeException failed) {
            // An error that asking again does not cure has changed nothing.
            placed |= keepMs > 0 && commands.passes(failed);
            throw failed;
        }
    }

    /** Sends, and waits for the answer for no longer than a server that is there may take. */
    private <T> T answered(long blockMs, Supplier<T> command) {
        dueNanos = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(blockMs);
        long endNanos = dueNanos + TimeUnit.MILLISECONDS.toNanos(options.answerMs());
        return AnswerTime.until(endNanos - giveUpNanos > 0 ? giveUpNanos : endNanos, command);
    }

    /** Pauses where that helps; true if the server has said that the lock is not to be had now. */
    private boolean recover(RuntimeException failed, long leftNanos) throws InterruptedException {
        uncertain |= commands.isOutOfReach(failed);
        if (Thread.currentThread().isInterrupted()) {
            return false; // That has closed the connection. The loop sees to it.
        }
        if (commands.isForeign(failed)) {
            outOfReachSince = 0;
            uncertain = false;
            placed = false; // It ended when the other one's value was written.
            if (leftNanos > 0) {
                long heldMs = commands.foreignMs(claim.name());
                pause(heldMs < 0 ? Wire.PACE_MS : Math.min(Wire.PACE_MS, heldMs + 1));
            }
            return true;
        }
        if (claim.several() && commands.isError(failed, "PARTIAL")) {
            // A grant whose answer was lost has ended in part meanwhile.
            release();
            uncertain = false;
            placed = false;
            return false;
        }
        if (!commands.passes(failed)) {
            throw failed;
        }
        long now = System.nanoTime();
        boolean first = outOfReachSince == 0;
        if (first) {
            outOfReachSince = now - dueNanos > 0 ? dueNanos : now;
        }
        boolean tooLong = !first && now - outOfReachSince > patienceNanos();
        if (tooLong || now - giveUpNanos >= 0) {
            uncertain = false; // There is nobody to tell.
            placed = false;
            throw failed;
        }
        // A connection from the pool may have been dead for long: the first new try needs no pause.
        if (!first) {
            pause(Wire.PACE_MS);
        }
        return false;
    }

    /** Another server may take over, and until then a waiter has its own time to wait for that. */
    private long patienceNanos() {
        long reconnectNanos = options.reconnect().toNanos();
        if (!commands.wire().failsOver()) {
            return reconnectNanos;
        }
        return Math.max(reconnectNanos, endless ? FAILOVER_NANOS : Long.MAX_VALUE);
    }

    private void pause(long pauseMs) throws InterruptedException {
        Wire.pause(pauseMs);
        noteInterrupt();
    }

    private void noteInterrupt() throws InterruptedException {
        if (Thread.interrupted()) {
            if (interruptible) {
                throw new InterruptedException("while waiting for " + claim.title());
            }
            interrupted = true;
        }
    }

    /**
     * Gives the place in the queue up, and sees that nothing is held or waited for by a request
     * that was cut off. The server may not have noticed the closed connection yet, and then grants
     * to a reader that wants to become the writer.
     */
    private void abandon() {
        boolean flag = Thread.interrupted();
        try {
            boolean again = uncertain;
            for (int tries = 0; again && tries < ABANDON_TRIES; tries++) {
                again = commands.resend(() -> commands.isWaiting(claim.name(), token));
                giveUp();
                if (again) {
                    Thread.sleep(Math.min(Wire.PACE_MS, 1 + tries));
                }
            }
            if (!uncertain) {
                giveUp(); // Its last answer came, so nobody listens.
            }
        } catch (RuntimeException | InterruptedException outOfReach) {
            // Then the lease or the grace ends it.
            flag |= outOfReach instanceof InterruptedException;
        }
        interrupted |= flag;
    }

    private void giveUp() {
        if (reader == null || reader.isOver()) {
            release();
        } else {
            holds.restoreReader(reader, "it ended while it waited to become the writer");
        }
    }

    /** Ends the place in the queue, or a hold that was granted unseen. */
    void release() {
        commands.resend(() -> commands.release(claim, token));
    }

    /** Whether it waits to turn a hold into another, so that a release would end that hold. */
    boolean isConversion() {
        return reader != null;
    }
}
