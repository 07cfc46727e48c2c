package io.github.redislock;

import java.util.Locale;
import java.util.UUID;
import java.util.concurrent.locks.Lock;

/**
 * A {@link Lock} that is kept by the server, reentrant per thread, fair, and with a lease.
 *
 * <p>A hold without a lease of its own is renewed by the client's watchdog until its last {@code
 * unlock()}, its thread's end or {@link RedisLockClient#close()}. With a lease it ends by itself. A
 * nested {@code lock()} asks the server whether the hold is still there, and never shortens it; one
 * without a lease has the watchdog renew it from then on.
 *
 * <p>A hold that is lost takes its whole count with it: the thread holds nothing from then on, the
 * next {@code lock()} is a new hold with a new fence, and each {@code unlock()} that is left over
 * throws {@link IllegalMonitorStateException}.
 *
 * <p>When the server is out of reach for longer than {@link LockOptions#reconnect()}, all methods
 * throw the exception of the driver.
 */
public final class RedisLock extends ThreadLock {
    private final String name;
    private final Mode mode;

    RedisLock(Holds holds, String name, Mode mode) {
        super(holds, Claim.one(name, mode));
        this.name = name;
        this.mode = mode;
    }

    @Override
    void unlock(long leastMs) {
        Hold hold = held();
        if (hold.count(mode) > 1 || (mode == Mode.SHARED && hold.exclusive > 0)) {
            hold.add(mode, -1);
        } else if (mode == Mode.EXCLUSIVE && hold.shared > 0) {
            hold.exclusive = 0; // From the sending on, as others may read even if no answer comes.
            if (!becomeReader(hold)) {
                throw Holds.notHeld(claim);
            }
        } else {
            holds.release(hold, leastMs);
        }
    }

    /**
     * Has the server run one command only if this thread holds the lock now, in one step: {@code
     * lock.exec("SET", "stock:42", 7)}. So an owner that has been replaced is refused at the
     * server.
     *
     * <p>It is sent once. After a failure of the connection
     * it may have run or not.
     *
     * @param command its name
     * @param arguments strings, byte arrays, numbers
     * @return the command's reply, with strings for bytes
     * @throws IllegalMonitorStateException when the thread does not hold it, or has lost it.
     *     Nothing was done then
     * @throws UnsupportedOperationException when the server does not know {@code LOCK.EXEC}
     */
    public Object exec(String command, Object... arguments) {
        return holds.exec(held(), command, arguments);
    }

    /**
     * Asks the server whether anybody holds it in this lock's way, exclusively or shared, or an old
     * client in its own.
     *
     * @return whether somebody does
     */
    public boolean isLocked() {
        try {
            return commands.resend(() -> commands.mode(name))
                    .equals(mode.name().toLowerCase(Locale.ROOT));
        } catch (RuntimeException failed) {
            if (commands.isForeign(failed)) {
                return true;
            }
            throw failed;
        }
    }

    /**
     * Asks the server when the lock is free by itself.
     *
     * @return milliseconds, or -2 when it is free
     */
    public long remainTimeToLive() {
        return commands.resend(() -> commands.ttlMs(name));
    }

    /**
     * Takes the lock away from whoever holds it, readers and writers alike; the next waiter has it
     * at once. If the calling thread holds it with others as one, it gives the others back.
     *
     * @return whether anybody held it
     */
    public boolean forceUnlock() {
        Hold hold = holds.mine(name);
        if (hold != null) {
            holds.drop(hold);
        }
        boolean held = commands.resend(() -> commands.delete(name));
        if (hold != null && hold.claim.several()) {
            commands.resend(() -> commands.release(hold.claim, hold.token));
        }
        return held;
    }

    /**
     * The lock's key.
     *
     * @return as it was given
     */
    public String getName() {
        return name;
    }

    @Override
    Hold mine() {
        Hold hold = holds.mine(name);
        return hold == null || hold.claim.several() ? null : hold;
    }

    @Override
    int count(Hold hold) {
        return hold.count(mode);
    }

    @Override
    boolean acquire(long waitNanos, long leaseMs, boolean interruptible)
            throws InterruptedException {
        refuseOverlap(interruptible);
        Hold hold = mine();
        // A request for a share that the server reads later would undo what comes now unseen.
        if (hold != null && hold.unconfirmed && !becomeReader(hold)) {
            hold = null;
        }
        boolean covered = hold != null && (hold.exclusive > 0 || mode == Mode.SHARED);
        if (covered && prolong(hold, leaseMs)) {
            hold.add(mode, 1);
            return true;
        }
        if (covered || hold == null) {
            return request(null, waitNanos, leaseMs, interruptible);
        }
        hold.setConverting(true);
        try {
            // The clock releases what it ends before that, so it is asked for anew.
            return request(hold.isOver() ? null : hold, waitNanos, leaseMs, interruptible);
        } finally {
            hold.setConverting(false);
        }
    }

    /** Asks for a new hold, or with {@code reader} for the conversion of a shared one. */
    private boolean request(Hold reader, long waitNanos, long leaseMs, boolean interruptible)
            throws InterruptedException {
        // Asked for anew, so that nothing that is still on its way for an earlier hold can touch
        // this one.
        String token = reader == null ? UUID.randomUUID().toString() : reader.token;
        long ttlMs = ttlMs(reader, leaseMs);
        Acquisition.Grant grant =
                holds.await(claim, token, ttlMs, reader, waitNanos, interruptible);
        if (grant == null) {
            return false;
        }
        take(reader, token, grant, leaseMs, ttlMs);
        return true;
    }

    private void take(
            Hold reader, String token, Acquisition.Grant grant, long leaseMs, long ttlMs) {
        boolean converted = reader != null && reader.fence == grant.fence() && !reader.isOver();
        if (reader != null && !converted) {
            holds.lose(reader, "it ended while it waited to become the writer");
        }
        Hold hold =
                converted ? reader : new Hold(claim, Thread.currentThread(), token, grant.fence());
        hold.add(mode, 1);
        hold.renewed |= leaseMs == RENEWED;
        hold.lease.begin(grant.askedNanos(), grant.sentNanos(), ttlMs);
        if (converted) {
            holds.watch(hold);
        } else {
            holds.add(hold);
        }
    }

    /** The last write lock goes and read locks stay: one step on the server. False when lost. */
    private boolean becomeReader(Hold hold) {
        hold.setConverting(true);
        try {
            return holds.restoreReader(hold, Holds.GONE);
        } finally {
            hold.setConverting(false);
        }
    }
}
