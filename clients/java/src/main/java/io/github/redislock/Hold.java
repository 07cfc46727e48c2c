package io.github.redislock;

import io.github.redislock.Claim.Mode;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Consumer;
import java.util.function.Supplier;

/**
 * One hold on one lock, or on several: one token, one fence, one lease, however often its thread
 * locked. Its counts belong to the owner alone; the rest is shared with the keeper.
 */
final class Hold {
    final Claim claim;
    final Thread owner;
    final String token;
    final long fence;
    final Lease lease;

    /**
     * How often the owner has it exclusively and shared. On the server it is exclusive while the
     * first is above 0.
     */
    int exclusive;

    int shared;

    /** Whether the keeper renews it. */
    volatile boolean renewed;

    /** Whether its release is under way. It is held until the server has answered. */
    volatile boolean releasing;

    /**
     * Whether it was to become a reader's and no answer has said that it is. It counts as one: the
     * server may let others read already, or have it as a writer's yet.
     */
    boolean unconfirmed;

    /** Whether its owner turns it into a writer's or a reader's now. */
    volatile boolean converting;

    /** Whether it may outlive the thread that took it, which may have handed it on. */
    boolean handedOn;

    /** When the keeper renews it next. */
    volatile long renewalNanos;

    /** Where its owner does not say, it is given back no sooner than so long after its grant. */
    volatile long leastMs;

    /** Is told of a loss in one line for a log, beside those who listen for all. */
    volatile Consumer<String> whenLost = reason -> {};

    /** Ends the hold's span of a trace. */
    volatile Consumer<String> whenOver = outcome -> {};

    private volatile Future<?> plan = Engine.done(null);
    private CompletableFuture<?> last = Engine.done(null);

    /** Whether it has ended by its owner's will or against it; null while it is held. */
    private final AtomicReference<Boolean> givenBack = new AtomicReference<>();

    Hold(Claim claim, Thread owner, String token, long fence, Lease lease) {
        this.claim = claim;
        this.owner = owner;
        this.token = token;
        this.fence = fence;
        this.lease = lease;
    }

    /** As the server should have it: a hold on one key may have been converted. */
    Claim claimNow() {
        boolean converted = !claim.several() && claim.limit() == 0 && exclusive + shared > 0;
        return converted
                ? Claim.one(claim.name(), exclusive > 0 ? Mode.EXCLUSIVE : Mode.SHARED)
                : claim;
    }

    /** Begins it when what was sent for this hold before is answered: nothing overtakes another. */
    <T> CompletableFuture<T> inTurn(Supplier<CompletableFuture<T>> step) {
        CompletableFuture<Object> mine = new CompletableFuture<>();
        CompletableFuture<?> before;
        synchronized (this) {
            before = last;
            last = mine;
        }
        CompletableFuture<T> result = before.thenCompose(any -> step.get());
        result.whenComplete((any, failed) -> mine.complete(null));
        return result;
    }

    int count(Mode mode) {
        return mode == Mode.EXCLUSIVE ? exclusive : shared;
    }

    void add(Mode mode, int times) {
        exclusive += mode == Mode.EXCLUSIVE ? times : 0;
        shared += mode == Mode.SHARED ? times : 0;
    }

    /** Whether its lease does, by the client's clock. */
    boolean lasts() {
        return lease.leftNanos() > 0;
    }

    /** By the client's clock, whether or not somebody has seen it. */
    boolean isEnded() {
        return isOver() || !lasts();
    }

    /**
     * Where nobody renews it, its owner may be at work still when the client's clock sees its end:
     * the server's comes no sooner for that, which the drift and two milliseconds make up for.
     */
    long leastMsAtItsEnd() {
        return renewed ? leastMs : Math.max(leastMs, lease.sinceAskedMs() + 2);
    }

    /** When the keeper looks at it next, in place of the last plan. */
    void plan(Future<?> next) {
        plan.cancel(false);
        plan = next;
    }

    /** Ends it, by its owner's will or against it; true for the one who did. */
    boolean end(boolean byOwner) {
        if (!givenBack.compareAndSet(null, byOwner)) {
            return false;
        }
        plan(Engine.done(null));
        whenOver.accept("");
        return true;
    }

    boolean isOver() {
        return givenBack.get() != null;
    }

    boolean isGivenBack() {
        return Boolean.TRUE.equals(givenBack.get());
    }
}
