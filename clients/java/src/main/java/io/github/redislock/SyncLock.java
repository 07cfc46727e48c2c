package io.github.redislock;

import io.github.redislock.Claim.Mode;

import java.time.Duration;
import java.util.concurrent.*;

/** A view of one key, of several, or of permits. What a thread holds is the client's to know. */
record SyncLock(SyncClient client, Claim claim)
        implements RedisLock, RedisMultiLock, RedisSemaphore {
    @Override
    public void lock(long lease, TimeUnit unit) {
        uninterrupted(() -> locked(Long.MAX_VALUE, Lease.ms(lease, unit), false));
    }

    @Override
    public boolean tryLock() {
        return uninterrupted(() -> locked(0, Lease.RENEWED, false));
    }

    @Override
    public boolean tryLock(long time, long lease, TimeUnit unit) throws InterruptedException {
        long leaseMs = Lease.ms(lease, unit);
        if (Thread.interrupted()) { // A nested one asks nobody who would notice.
            throw new InterruptedException("before asking for " + claim.title());
        }
        return locked(unit.toNanos(time), leaseMs, true);
    }

    @Override
    public RedisHold tryAcquire() {
        return uninterrupted(() -> handedOut(0, Lease.RENEWED, false));
    }

    @Override
    public RedisHold tryAcquire(long time, long lease, TimeUnit unit) throws InterruptedException {
        return handedOut(unit.toNanos(time), Lease.ms(lease, unit), true);
    }

    /** A new hold that belongs to no thread, or null. */
    SyncHold handedOut(long waitNanos, long leaseMs, boolean interruptible)
            throws InterruptedException {
        Hold hold = new Acquire(client.engine, claim, leaseMs, null, waitNanos, true)
                .await(interruptible);
        if (hold == null) {
            return null;
        }
        hold.handedOn = true;
        client.engine.keeper.watch(hold);
        return new SyncHold(client.engine.keeper, hold);
    }

    static <T> T uninterrupted(Callable<T> action) {
        try {
            return action.call();
        } catch (Exception failed) {
            throw Engine.thrown(failed);
        }
    }

    private boolean locked(long waitNanos, long leaseMs, boolean interruptible)
            throws InterruptedException {
        refuseOverlap();
        Hold before = mine();
        // A request for a share that the server reads later would undo what comes now unseen.
        boolean gone = before != null && before.unconfirmed && !becomeReader(before);
        Hold hold = gone ? null : before;
        boolean covered = hold != null
                && (claim.several() || hold.exclusive > 0 || claim.mode() == Mode.SHARED);
        if (covered && Engine.join(() -> client.engine.keeper.prolong(hold, leaseMs))) {
            hold.add(claim.mode(), 1);
            return true;
        }
        Hold reader = covered ? null : hold;
        Hold taken;
        convert(reader, true);
        try {
            // The clock releases what it ends before that, so it is asked for anew.
            Hold converted = reader == null || reader.isOver() ? null : reader;
            taken = new Acquire(client.engine, claim, leaseMs, converted, waitNanos, true)
                    .await(interruptible);
        } finally {
            convert(reader, false);
        }
        if (taken != null) {
            taken.add(claim.mode(), 1);
            client.add(taken);
        }
        return taken != null;
    }

    /** Waits for a renewal that is under way, as that may bind it by the mode that it had. */
    private static void convert(Hold hold, boolean now) {
        if (hold != null) {
            Engine.join(() -> hold.inTurn(() -> {
                hold.converting = now;
                return Engine.done(null);
            }));
        }
    }

    /** The last write lock goes and read locks stay: one step on the server. False when lost. */
    private boolean becomeReader(Hold hold) {
        return Engine.join(() -> hold.inTurn(
                () -> client.engine.keeper.restoreReader(hold, Keeper.GONE)));
    }

    /** The thread may hold only by this what it asks for by it: it would wait for itself. */
    private void refuseOverlap() {
        for (String name : claim.names()) {
            Hold hold = client.mine(name);
            if (hold != null && !isOf(hold)) {
                throw new IllegalStateException("this thread holds "
                        + hold.claim.title()
                        + " already, and would wait for itself: unlock that first");
            }
        }
    }

    @Override
    public void unlock(Duration atLeast) {
        long leastMs = Lease.leastMs(atLeast);
        Hold hold = held();
        if (hold.count(claim.mode()) > 1 || (claim.mode() == Mode.SHARED && hold.exclusive > 0)) {
            hold.add(claim.mode(), -1);
        } else if (claim.mode() == Mode.EXCLUSIVE && hold.shared > 0) {
            downgrade(hold);
        } else {
            // One that throws can be tried again.
            boolean held = Engine.join(() -> client.engine.keeper.release(hold, leastMs));
            client.forget(hold);
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
            if (client.engine.refusal(failed) != null) { // The server has not done it.
                hold.exclusive = 1;
                hold.unconfirmed = false;
            }
            throw failed;
        }
    }

    @Override
    public boolean renew(Duration ttl) {
        Hold hold = held();
        return Engine.join(() -> client.engine.keeper.set(hold, Lease.ms(ttl)));
    }

    @Override
    public long fence() {
        return held().fence;
    }

    @Override
    public int getHoldCount() {
        Hold hold = mine();
        return hold == null ? 0 : hold.count(claim.mode());
    }

    @Override
    public boolean check() {
        Hold hold = mine();
        boolean counts = hold != null && hold.count(claim.mode()) > 0;
        return counts && Engine.join(() -> client.engine.keeper.check(hold));
    }

    @Override
    public Object exec(String command, Object... arguments) {
        Hold hold = held();
        return Engine.join(() -> client.engine.keeper.exec(hold, command, arguments));
    }

    @Override
    public boolean isLocked() {
        return Engine.join(() -> client.engine
                .info(getName(), "mode")
                .thenApply(mode -> claim.mode().name().equalsIgnoreCase(String.valueOf(mode)))
                // An old client may hold it, in its own way.
                .exceptionallyCompose(failed -> client.engine.isError(failed, "WRONGTYPE")
                        ? Engine.done(true)
                        : Engine.failed(failed)));
    }

    @Override
    public long remainTimeToLive() {
        return (Long) asked("PTTL");
    }

    private Object asked(String command) {
        Engine engine = client.engine;
        return Engine.join(
                () -> engine.again(() -> engine.send(new Request(command).key(getName()))));
    }

    @Override
    public boolean forceUnlock() {
        Hold hold = client.mine(getName());
        boolean held = Replies.isOne(asked("DEL"));
        if (hold != null) { // And the others, where it is on several.
            client.forget(hold);
            Engine.join(() -> client.engine.keeper.releaseAtLast(hold));
        }
        return held;
    }

    @Override
    public int availablePermits() {
        Object holders = Engine.join(() -> client.engine.info(getName(), "holder-count"));
        if (client.engine.fallback.isUsed()) {
            throw Fallback.lacks(Fallback.SEMAPHORE);
        }
        return (int) Math.max(0, claim.limit() - (holders instanceof Long count ? count : 0));
    }

    @Override
    public String getName() {
        return claim.name();
    }

    /** The calling thread's hold on just this; null when it has none. */
    private Hold mine() {
        Hold hold = client.mine(claim.name());
        return hold != null && isOf(hold) ? hold : null;
    }

    /** Whether it is a hold on just this. One on one key may be a reader's or a writer's. */
    private boolean isOf(Hold hold) {
        return hold.claim.equals(claim) || !hold.claim.several() && !claim.several();
    }

    private Hold held() {
        Hold hold = mine();
        if (hold == null || hold.count(claim.mode()) == 0) {
            throw client.engine.closed ? Engine.closed() : Replies.notHeld(claim);
        }
        return hold;
    }
}
