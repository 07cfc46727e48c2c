package io.github.redislock;

import java.time.Duration;
import java.util.Locale;
import java.util.concurrent.*;
import java.util.concurrent.locks.Condition;

/** A view of one key, or of several. What a thread holds of it is the client's to know. */
final class SyncLock extends SyncSemaphore implements RedisLock, RedisMultiLock {
    private final Mode mode;
    private final Engine engine;
    private final Keeper keeper;

    SyncLock(SyncClient client, Claim claim) {
        super(client, claim);
        this.mode = claim.several() ? Mode.EXCLUSIVE : claim.modes().get(0);
        this.engine = client.engine;
        this.keeper = client.keeper;
    }

    @Override
    public void lock() {
        acquireUninterruptibly(Long.MAX_VALUE, Leases.RENEWED);
    }

    @Override
    public void lock(long lease, TimeUnit unit) {
        acquireUninterruptibly(Long.MAX_VALUE, Leases.ms(lease, unit));
    }

    private boolean acquireUninterruptibly(long waitNanos, long leaseMs) {
        try {
            return acquire(waitNanos, leaseMs, false);
        } catch (InterruptedException never) {
            throw new AssertionError(never);
        }
    }

    @Override
    public void lockInterruptibly() throws InterruptedException {
        acquire(Long.MAX_VALUE, Leases.RENEWED, true);
    }

    @Override
    public void lockInterruptibly(long lease, TimeUnit unit) throws InterruptedException {
        acquire(Long.MAX_VALUE, Leases.ms(lease, unit), true);
    }

    @Override
    public boolean tryLock() {
        return acquireUninterruptibly(0, Leases.RENEWED);
    }

    @Override
    public boolean tryLock(long time, TimeUnit unit) throws InterruptedException {
        return acquire(Math.max(0, unit.toNanos(time)), Leases.RENEWED, true);
    }

    @Override
    public boolean tryLock(long time, long lease, TimeUnit unit) throws InterruptedException {
        return acquire(Math.max(0, unit.toNanos(time)), Leases.ms(lease, unit), true);
    }

    private boolean acquire(long waitNanos, long leaseMs, boolean interruptible)
            throws InterruptedException {
        refuseOverlap(interruptible);
        Hold hold = mine();
        // A request for a share that the server reads later would undo what comes now unseen.
        if (hold != null && hold.unconfirmed && !becomeReader(hold)) {
            hold = null;
        }
        boolean covered = hold != null
                && (claim.several() || hold.exclusive > 0 || mode == Mode.SHARED);
        if (covered && prolong(hold, leaseMs)) {
            hold.add(mode, 1);
            return true;
        }
        if (hold == null || covered) {
            Hold taken = client.acquire(claim, null, leaseMs, waitNanos, interruptible);
            if (taken != null) {
                taken.add(mode, 1);
                client.add(taken);
            }
            return taken != null;
        }
        convert(hold, true);
        Hold reader = hold;
        try {
            // The clock releases what it ends before that, so it is asked for anew.
            hold = client.acquire(
                    claim, reader.isOver() ? null : reader, leaseMs, waitNanos, interruptible);
        } finally {
            convert(reader, false);
        }
        if (hold == null) {
            return false;
        }
        hold.add(mode, 1);
        if (hold == reader) {
            keeper.watch(hold);
        } else {
            client.add(hold);
        }
        return true;
    }

    /** Waits for a renewal that is under way, as that may bind it by the mode that it had. */
    private static void convert(Hold hold, boolean now) {
        Engine.join(() -> hold.inTurn(() -> {
            hold.converting = now;
            return CompletableFuture.completedFuture(null);
        }));
    }

    private boolean prolong(Hold hold, long leaseMs) {
        return Engine.join(() -> keeper.prolong(hold, leaseMs == Leases.RENEWED, leaseMs));
    }

    /** The last write lock goes and read locks stay: one step on the server. False when lost. */
    private boolean becomeReader(Hold hold) {
        convert(hold, true);
        try {
            return Engine.join(() -> keeper.restoreReader(hold, Keeper.GONE));
        } finally {
            convert(hold, false);
        }
    }

    /** The thread may hold only by this what it asks for by it: it would wait for itself. */
    private void refuseOverlap(boolean interruptible) throws InterruptedException {
        if (interruptible && Thread.interrupted()) {
            throw new InterruptedException("before asking for " + claim.title());
        }
        for (String name : claim.names()) {
            Hold hold = client.mine(name);
            if (hold != null
                    && (hold.claim.several() || claim.several())
                    && !hold.claim.equals(claim)) {
                throw new IllegalStateException("this thread holds "
                        + hold.claim.title()
                        + " already, and would wait for itself: unlock that first");
            }
        }
    }

    @Override
    public void unlock() {
        unlock(0);
    }

    @Override
    public void unlock(Duration atLeast) {
        unlock(Leases.leastMs(atLeast));
    }

    private void unlock(long leastMs) {
        Hold hold = held();
        if (hold.count(mode) > 1 || (mode == Mode.SHARED && hold.exclusive > 0)) {
            hold.add(mode, -1);
        } else if (mode == Mode.EXCLUSIVE && hold.shared > 0) {
            downgrade(hold);
        } else {
            boolean held;
            try {
                held = Engine.join(() -> keeper.release(hold, leastMs));
            } finally {
                if (hold.isOver()) { // Otherwise it can be tried again.
                    client.forget(hold);
                }
            }
            if (!held) {
                throw Replies.notHeld(claim);
            }
        }
    }

    private void downgrade(Hold hold) {
        hold.exclusive = 0; // From the sending on, as others may read even if no answer comes.
        try {
            if (!becomeReader(hold)) {
                throw Replies.notHeld(claim);
            }
        } catch (RuntimeException failed) {
            if (engine.driver.refusal(failed) != null) { // The server has not done it.
                hold.exclusive = 1;
                hold.unconfirmed = false;
            }
            throw failed;
        }
    }

    @Override
    public boolean renew(Duration ttl) {
        Hold hold = held();
        return Engine.join(() -> keeper.set(hold, Leases.ms(ttl)));
    }

    @Override
    public Condition newCondition() {
        throw new UnsupportedOperationException("a lock of the server has no conditions");
    }

    @Override
    public long fence() {
        return held().fence;
    }

    @Override
    public boolean isHeldByCurrentThread() {
        return getHoldCount() > 0;
    }

    @Override
    public int getHoldCount() {
        Hold hold = mine();
        return hold == null ? 0 : hold.count(mode);
    }

    @Override
    public boolean check() {
        Hold hold = mine();
        return hold != null && hold.count(mode) > 0 && Engine.join(() -> keeper.check(hold));
    }

    @Override
    public Object exec(String command, Object... arguments) {
        Hold hold = held();
        return Engine.join(() -> keeper.exec(hold, command, arguments));
    }

    @Override
    public boolean isLocked() {
        String mine = mode.name().toLowerCase(Locale.ROOT);
        return Engine.join(() -> engine.info(getName())
                .thenApply(info -> info.getOrDefault("mode", "free").equals(mine))
                .exceptionally(failed -> {
                    if (engine.isError(failed, "WRONGTYPE")) {
                        return true; // An old client holds it, in its own way.
                    }
                    throw new CompletionException(Engine.cause(failed));
                }));
    }

    @Override
    public long remainTimeToLive() {
        return (Long) Engine.join(
                () -> engine.again(() -> engine.send(new Request("PTTL").key(getName()))));
    }

    @Override
    public boolean forceUnlock() {
        Hold hold = client.mine(getName());
        boolean held = Replies.isOne(Engine.join(
                () -> engine.again(() -> engine.send(new Request("DEL").key(getName())))));
        if (hold != null) {
            hold.giveBack();
            client.forget(hold);
            if (hold.claim.several()) {
                Engine.join(() -> engine.giveUp(hold.claim, hold.token, 0));
            }
        }
        return held;
    }

    /** The calling thread's hold on just this; null when it has none. */
    private Hold mine() {
        Hold hold = client.mine(claim.name());
        boolean same = hold != null
                && (claim.several() ? hold.claim.equals(claim) : !hold.claim.several());
        return same ? hold : null;
    }

    private Hold held() {
        Hold hold = mine();
        if (hold == null || hold.count(mode) == 0) {
            throw Replies.notHeld(claim);
        }
        return hold;
    }
}
