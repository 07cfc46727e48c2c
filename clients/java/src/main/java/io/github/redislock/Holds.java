package io.github.redislock;

import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import java.util.function.Consumer;

/**
 * What the threads of one client hold; the watchdog, which renews it all; and the clock, a thread
 * that sees the ends of the leases. A renewal may wait for its answer for longer than there is
 * lease left, so neither the news of its end nor the renewal of another hold stands behind it.
 */
final class Holds implements AutoCloseable {
    static final String GONE = "the server says that it is over";
    static final String ENDED = "its lease ended";
    static final String NOT_RENEWED = "no renewal came through before its lease ended";

    /** How many renewals may wait at once for servers that are silent. */
    static final int MOST_RENEWING = 64;

    private record Key(String name, Thread owner) {}

    private final Map<Key, Hold> holds = new ConcurrentHashMap<>();
    private final Set<Hold> bound = ConcurrentHashMap.newKeySet();

    /** Each until it waits no more, so that {@link #close()} gives up its place. */
    final Set<Acquisition> waiting = ConcurrentHashMap.newKeySet();

    final Commands commands;
    final LockOptions options;
    private final long ttlMs;
    private final Consumer<LostLock> onLost;
    private final ScheduledThreadPoolExecutor watchdog = thread("redis-lock-watchdog");
    private final ThreadPoolExecutor renewing = renewing();
    private final ScheduledThreadPoolExecutor clock = thread("redis-lock-clock");

    Holds(Commands commands, LockOptions options) {
        this.commands = commands;
        this.options = options;
        this.ttlMs = options.ttl().toMillis();
        this.onLost = options.onLost();
        if (options.linger().isPresent()) {
            commands.wire().onReconnect(this::rebindAll);
        }
    }

    /** The connection that the holds are bound to is another one now. */
    private synchronized void rebindAll() {
        if (!watchdog.isShutdown()) {
            watchdog.execute(() -> bound.forEach(hold -> {
                hold.unbound = true;
                beginRenewal(hold);
            }));
        }
    }

    /** By a thread that may wait for the answer; soon, where all of them do that. */
    private void beginRenewal(Hold hold) {
        try {
            renewing.execute(() -> keep(hold));
        } catch (RejectedExecutionException busy) {
            planRenewal(hold, soonNanos(ttlMs));
        }
    }

    private void keep(Hold hold) {
        boolean held;
        synchronized (hold) { // A lease that its owner sets comes before or after.
            held = hold.isOver() || keepNow(hold);
        }
        if (!held) {
            // Unless its owner released it while this was on its way.
            lose(hold, GONE);
        }
    }

    /** False when the server says that it is over. */
    private boolean keepNow(Hold hold) {
        // Who is dead cannot unlock; renewing for it would lock everybody out for ever.
        boolean renewed = hold.renewed && (hold.handedOn || hold.owner.isAlive());
        if (!hold.unbound && !renewed) {
            return true;
        }
        long leaseMs = leaseMs(hold);
        Lease.Sent sent = hold.lease.sends(leaseMs);
        try {
            if (!commands.renew(hold.claim, hold.token, leaseMs)) {
                return false;
            }
            hold.lease.answered(sent);
            watch(hold); // If that came too late, the clock sees the end, unless it has begun anew.
            if (hold.isConverting()) {
                return true; // By a conversion its token may get a new hold.
            }
            if (hold.isLost()) {
                // The loss is told, so nobody would ever unlock it.
                commands.release(hold.claim, hold.token, hold.leastMsAtItsEnd());
            } else if (hold.unbound && !hold.isEnded()) {
                return bind(hold, leaseMs);
            }
        } catch (RuntimeException failed) {
            planRenewal(hold, soonNanos(ttlMs));
        }
        return true;
    }

    /** What to ask for: the ttl where it is renewed, but no less than is left. */
    private long leaseMs(Hold hold) {
        return Math.max(hold.renewed ? ttlMs : 0, hold.lease.leftMs());
    }

    /** Where the server does not do it now, it has said that it is held: the next renewal asks. */
    private boolean bind(Hold hold, long leaseMs) {
        hold.unbound = false; // Before it is sent, as that connection may be lost as well.
        Long fence = null;
        try {
            fence = commands.tryAcquire(hold.claimNow(), hold.token, leaseMs);
        } catch (RuntimeException failed) {
            if (commands.isForeign(failed) || commands.isError(failed, "PARTIAL")) {
                return false;
            }
        }
        hold.unbound |= fence == null;
        if (fence != null && fence != hold.fence) {
            commands.release(hold.claim, hold.token); // A new one, which nobody asked for.
            return false;
        }
        return true;
    }

    /** One thread, which ends with the program. */
    static ScheduledThreadPoolExecutor thread(String name) {
        ScheduledThreadPoolExecutor executor = new ScheduledThreadPoolExecutor(1, daemons(name));
        executor.setRemoveOnCancelPolicy(true);
        executor.setExecuteExistingDelayedTasksAfterShutdownPolicy(false);
        return executor;
    }

    /** Its threads end when idle. It refuses what is beyond the most. */
    private static ThreadPoolExecutor renewing() {
        BlockingQueue<Runnable> queue = new SynchronousQueue<>() {
            private static final long serialVersionUID = 1;

            /** Waits a moment for a thread: only a server that is silent is worth one more. */
            @Override
            public boolean offer(Runnable task) {
                try {
                    return offer(task, 5, TimeUnit.MILLISECONDS);
                } catch (InterruptedException closed) {
                    return false;
                }
            }
        };
        ThreadPoolExecutor executor = new ThreadPoolExecutor(
                1,
                MOST_RENEWING,
                30,
                TimeUnit.SECONDS,
                queue,
                daemons("redis-lock-watchdog"));
        executor.allowCoreThreadTimeOut(true);
        return executor;
    }

    static ThreadFactory daemons(String name) {
        return task -> {
            Thread thread = new Thread(task, name);
            thread.setDaemon(true);
            return thread;
        };
    }

    /** What the calling thread holds, by the client's own clock; null when nothing. */
    Hold mine(String name) {
        if (isClosed()) {
            throw new IllegalStateException("the client is closed");
        }
        Hold hold = holds.get(new Key(name, Thread.currentThread()));
        if (hold != null && hold.lease.leftNanos() <= 0) {
            lose(hold, ENDED);
            return null;
        }
        return hold;
    }

    static IllegalMonitorStateException notHeld(Claim claim) {
        String kind = claim.limit() > 0 ? "the permit of " : "the lock of ";
        return new IllegalMonitorStateException(
                kind + claim.title() + " is not held here, or was lost");
    }

    /** Waits for up to {@code waitNanos}, and with {@code reader} for the conversion of a hold. */
    Acquisition.Grant await(
            Claim claim,
            String token,
            long ttlMs,
            Hold reader,
            long waitNanos,
            boolean interruptible)
            throws InterruptedException {
        try {
            return new Acquisition(this, claim, token, ttlMs, reader, interruptible)
                    .await(waitNanos);
        } catch (RuntimeException failed) {
            if (commands.isError(failed, "CANCELLED")) {
                throw new LockCancelledException(claim.title());
            }
            if (!commands.isError(failed, "DEADLOCK")) {
                throw failed;
            }
            if (waitNanos != Long.MAX_VALUE) {
                return null;
            }
            throw new LockDeadlockException(claim.title(), failed.getMessage());
        }
    }

    /** A new hold of the calling thread, or null. Nobody looks after it yet. */
    Hold acquire(Claim claim, long ttlMs, long waitNanos, boolean interruptible)
            throws InterruptedException {
        if (isClosed()) {
            throw new IllegalStateException("the client is closed");
        }
        String token = UUID.randomUUID().toString();
        Acquisition.Grant grant = await(claim, token, ttlMs, null, waitNanos, interruptible);
        if (grant == null) {
            return null;
        }
        Hold hold = new Hold(claim, Thread.currentThread(), token, grant.fence());
        hold.lease.begin(grant.askedNanos(), grant.sentNanos(), ttlMs);
        return hold;
    }

    /**
     * Sets a hold's lease by its owner's will; false when it was lost. From then on nobody renews
     * it.
     */
    boolean renew(Hold hold, long leaseMs) {
        if (hold.isEnded()) {
            lose(hold, ENDED); // Unless the clock was quicker.
            return false;
        }
        boolean held;
        synchronized (hold) { // A renewal by the watchdog that is under way comes first.
            boolean before = hold.renewed;
            hold.renewed = false;
            try {
                held = renewed(hold, leaseMs, true);
            } catch (RuntimeException failed) {
                hold.renewed = before; // Its owner relies on that, as no lease was set.
                watch(hold);
                throw failed;
            }
        }
        if (held) {
            watch(hold);
        } else {
            lose(hold, GONE);
        }
        return held && !hold.isOver();
    }

    /**
     * False when it is over, by the server's word or by the client's clock. At TRYAGAIN it asks
     * again if {@code insists}; otherwise what is left of the lease will do.
     */
    boolean renewed(Hold hold, long leaseMs, boolean insists) {
        Lease.Sent[] sent = new Lease.Sent[1];
        BooleanSupplier lasts = () -> hold.lease.leftNanos() > 0;
        Optional<Boolean> held = commands.renewWhile(() -> insists && lasts.getAsBoolean(), () -> {
            sent[0] = hold.lease.sends(leaseMs);
            return commands.renew(hold.claim, hold.token, leaseMs);
        });
        if (held.isEmpty()) {
            return lasts.getAsBoolean();
        }
        if (!held.get()) {
            return false;
        }
        if (hold.lease.answered(sent[0])) {
            return true;
        }
        releaseLost(hold, hold.leastMsAtItsEnd()); // Nobody would ever unlock it.
        return false;
    }

    /**
     * Makes a reader of a writer, or of one that may have become it unseen; false when it is lost.
     * A request without KEEP also ends a place that nobody listens for.
     */
    boolean restoreReader(Hold hold, String reason) {
        Claim shared = Claim.one(hold.claim.name(), Mode.SHARED);
        long leaseMs = leaseMs(hold);
        hold.unconfirmed = true;
        Lease.Sent[] sent = new Lease.Sent[1];
        Long fence = commands.resend(() -> {
            sent[0] = hold.lease.sends(leaseMs);
            return commands.tryAcquire(shared, hold.token, leaseMs);
        });
        // While a guard is on, one that has a share already gets null.
        boolean held = fence == null
                ? renewed(hold, leaseMs, true)
                : fence == hold.fence && hold.lease.answered(sent[0]);
        if (held && !hold.isOver()) {
            hold.unconfirmed = false;
            watch(hold);
            return true;
        }
        lose(hold, reason);
        // Nobody knows of what the server has yet.
        commands.resend(() -> commands.release(shared, hold.token));
        return false;
    }

    /**
     * Gives a hold back; an error when it was lost. On the server it ends {@code leastMs} after its
     * grant, or at once if that is past. A time above the server's bound is an error, too, as any
     * is in the fallback.
     */
    void release(Hold hold, long leastMs) {
        try {
            giveBack(hold, leastMs);
        } catch (IllegalArgumentException | ModuleMissingException refused) {
            try {
                giveBack(hold, 0); // Its owner has no more way to it, so it must not stay.
            } catch (RuntimeException late) {
                refused.addSuppressed(late);
            }
            throw refused;
        }
    }

    private void giveBack(Hold hold, long leastMs) {
        drop(hold, leastMs);
        if (!isHeldAtItsRelease(hold, leastMs)) {
            throw notHeld(hold.claim);
        }
    }

    /** Has the server end what was dropped. True also where a lost answer leaves that open. */
    boolean isHeldAtItsRelease(Hold hold, long leastMs) {
        // If the reply is lost, the second try cannot tell "released by the first" from "lost
        // before". While the lease lasts by the client's clock it is taken for the former.
        boolean[] unanswered = {false};
        long before = commands.wire().resends();
        boolean released = commands.resend(() -> {
            try {
                return commands.release(hold.claim, hold.token, leastMs);
            } catch (RuntimeException failed) {
                // One of several may be refused after others were released.
                unanswered[0] |= hold.claim.several() || commands.isOutOfReach(failed);
                throw failed;
            }
        });
        boolean again = unanswered[0] || commands.wire().resends() != before;
        return released || again && hold.lease.leftNanos() > 0;
    }

    /** Gives a hold back, to end {@code restMs} from now; an error when it was lost. */
    void releaseIn(Hold hold, long restMs) {
        try {
            giveBack(hold, hold.lease.sinceAskedMs() + restMs);
        } catch (IllegalArgumentException | ModuleMissingException refused) {
            // The rest alone is not above the bound, nor does it need the module.
            Optional<Boolean> held = commands.renewWhile(
                    () -> hold.lease.leftNanos() > 0,
                    () -> commands.renew(hold.claim, hold.token, restMs));
            if (!held.orElse(false)) {
                throw notHeld(hold.claim);
            }
        }
    }

    /** A new hold that belongs to no thread, or null. */
    RedisHold handOut(Claim claim, long waitNanos, long leaseMs, boolean interruptible)
            throws InterruptedException {
        if (interruptible && Thread.interrupted()) {
            throw new InterruptedException("before asking for " + claim.title());
        }
        Hold hold = take(claim, waitNanos, leaseMs, interruptible);
        return hold == null ? null : new RedisHold(this, hold);
    }

    Hold take(Claim claim, long waitNanos, long leaseMs, boolean interruptible)
            throws InterruptedException {
        boolean renewed = leaseMs == ThreadLock.RENEWED;
        Hold hold = acquire(claim, renewed ? ttlMs : leaseMs, waitNanos, interruptible);
        if (hold != null) {
            hold.handedOn = true;
            hold.renewed = renewed;
            watch(hold);
        }
        return hold;
    }

    /** Whether the server says that it is held, while the lease lasts. */
    boolean check(Hold hold) {
        if (!commands.resend(() -> commands.check(hold.claim, hold.token))) {
            lose(hold, GONE);
        }
        return !hold.isEnded();
    }

    Object exec(Hold hold, String command, Object... arguments) {
        if (hold.isEnded()) {
            throw notHeld(hold.claim);
        }
        boolean interrupted = Thread.interrupted(); // A set flag would close the socket.
        try {
            return commands.exec(hold.claim.name(), hold.token, command, arguments);
        } catch (RuntimeException failed) {
            if (!commands.isError(failed, "NOTHELD") && !endedByString(hold, failed)) {
                throw failed;
            }
            lose(hold, GONE);
            throw notHeld(hold.claim);
        } finally {
            if (interrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }

    /** Whether the wrong type is the lock's; the command may meet one, too. */
    private boolean endedByString(Hold hold, RuntimeException failed) {
        try {
            return commands.isError(failed, "WRONGTYPE") && !commands.check(hold.claim, hold.token);
        } catch (RuntimeException unknown) {
            return false;
        }
    }

    boolean isClosed() {
        return watchdog.isShutdown();
    }

    void add(Hold hold) {
        hold.claim.names().forEach(name -> holds.put(new Key(name, hold.owner), hold));
        watch(hold);
    }

    /** Forgets a hold that its owner gives back; false when it was over. */
    boolean drop(Hold hold) {
        boolean dropped = hold.giveBack();
        if (dropped) {
            forget(hold);
        }
        return dropped;
    }

    /** The same before a release that leaves it for {@code leastMs}. */
    boolean drop(Hold hold, long leastMs) {
        if (leastMs == 0) {
            return drop(hold);
        }
        synchronized (hold) { // A renewal that is under way comes first, or it would undo that.
            return drop(hold);
        }
    }

    void lose(Hold hold, String reason) {
        if (hold.lose()) {
            forget(hold);
            // By a conversion its token may get a new hold.
            if (hold.claim.several() || (reason != GONE && !hold.isConverting())) {
                releaseRest(hold, reason);
            }
            tellLost(hold, reason);
        }
    }

    void tellLost(Hold hold, String reason) {
        onLost.accept(new LostLock(hold.claim.title(), hold.owner, hold.fence, reason));
    }

    private void forget(Hold hold) {
        bound.remove(hold);
        hold.claim.names().forEach(name -> holds.remove(new Key(name, hold.owner), hold));
    }

    /** The others of several, or what a renewal that is still on its way would leave to nobody. */
    private synchronized void releaseRest(Hold hold, String reason) {
        if (!watchdog.isShutdown()) {
            long leastMs = reason == GONE ? hold.leastMs : hold.leastMsAtItsEnd();
            watchdog.execute(() -> beginRelease(hold, leastMs));
        }
    }

    /** As a renewal is begun. A watchdog that is closed refuses to plan it again. */
    private void beginRelease(Hold hold, long leastMs) {
        try {
            renewing.execute(() -> releaseLost(hold, leastMs));
        } catch (RejectedExecutionException busy) {
            Runnable again = () -> beginRelease(hold, leastMs);
            watchdog.schedule(again, soonNanos(ttlMs), TimeUnit.NANOSECONDS);
        }
    }

    private void releaseLost(Hold hold, long leastMs) {
        try {
            commands.resend(() -> commands.release(hold.claim, hold.token, leastMs));
        } catch (RuntimeException outOfReach) {
            // Then their leases end them.
        }
    }

    /** Has the watchdog and the clock look after a hold whose lease has just begun. */
    synchronized void watch(Hold hold) {
        if (hold.isOver() || clock.isShutdown()) {
            return;
        }
        if (options.linger().isPresent()) {
            bound.add(hold);
        }
        // Not before the end has passed.
        long endNanos = Math.max(0, hold.lease.leftNanos()) + 1;
        hold.planEnding(clock.schedule(() -> seeEnd(hold), endNanos, TimeUnit.NANOSECONDS));
        if (hold.renewed || hold.unbound) {
            planRenewal(hold, Math.min(TimeUnit.MILLISECONDS.toNanos(ttlMs), endNanos) / 3);
        } else {
            hold.planRenewal(null);
        }
    }

    private synchronized void planRenewal(Hold hold, long delayNanos) {
        if (!hold.isOver() && !watchdog.isShutdown()) {
            Runnable renewal = () -> beginRenewal(hold);
            hold.planRenewal(watchdog.schedule(renewal, delayNanos, TimeUnit.NANOSECONDS));
        }
    }

    private void seeEnd(Hold hold) {
        if (hold.lease.leftNanos() > 0) {
            watch(hold); // Begun anew this moment.
            return;
        }
        lose(hold, hold.renewed ? NOT_RENEWED : ENDED);
    }

    /** The pause after a renewal that failed, with TRYAGAIN for instance. */
    static long soonNanos(long ttlMs) {
        return TimeUnit.MILLISECONDS.toNanos(Math.min(ttlMs, 4_000)) / 20;
    }

    /**
     * Stops the watchdog and the clock, and gives up the places of those that wait. What is held
     * ends with its lease.
     */
    @Override
    public void close() {
        synchronized (this) {
            watchdog.shutdownNow();
            renewing.shutdownNow();
            clock.shutdownNow();
            holds.clear();
            bound.clear();
        }
        try {
            for (Acquisition request : waiting) {
                if (!request.isConversion()) {
                    request.release();
                }
            }
        } catch (RuntimeException outOfReach) {
            // Then the grace ends them.
        } finally {
            commands.closed().set(true);
        }
    }
}
