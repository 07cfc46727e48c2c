package io.github.redislock;

import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.*;
import java.util.function.Function;
import java.util.function.Supplier;

/** A view of one key, of several, or of permits, by futures. */
record FutureLock(Engine engine, Claim claim) implements AsyncLock {
    @Override
    public CompletableFuture<AsyncHold> lock() {
        return take(Acquire.ENDLESS, Lease.RENEWED, hold -> hold);
    }

    @Override
    public CompletableFuture<Optional<AsyncHold>> tryLock(Duration time) {
        return take(time.toNanos(), Lease.RENEWED, Optional::ofNullable);
    }

    @Override
    public CompletableFuture<Optional<AsyncHold>> tryLock(Duration time, Duration lease) {
        return take(time.toNanos(), Lease.ms(lease), Optional::ofNullable);
    }

    @Override
    public <T> CompletableFuture<T> with(
            Function<AsyncHold, ? extends CompletionStage<T>> work) {
        CompletableFuture<FutureHold> waiting =
                take(Acquire.ENDLESS, Lease.RENEWED, Function.identity());
        CompletableFuture<T> result = new CompletableFuture<>();
        result.whenComplete((value, failed) -> waiting.cancel(false)); // Its place, if it waits.
        waiting.thenCompose(hold -> finished(
                        () -> work.apply(hold),
                        () -> hold.unlockAtLast().thenAccept(held -> {
                            if (!held) {
                                throw Replies.notHeld(claim);
                            }
                        })))
                .whenComplete(Engine.settle(result));
        return result;
    }

    /** Does the work, and then what ends it, whatever comes of it. Its own error comes first. */
    static <T> CompletableFuture<T> finished(
            Supplier<? extends CompletionStage<T>> work, Supplier<CompletableFuture<Void>> end) {
        CompletableFuture<T> working = Engine.done(null).thenCompose(any -> work.get());
        return working.handle((value, failed) -> end.get().exceptionallyCompose(late -> {
                    if (failed == null) {
                        return Engine.failed(late);
                    }
                    Engine.cause(failed).addSuppressed(Engine.cause(late));
                    return Engine.done(null);
                }))
                .thenCompose(Function.identity())
                .thenCompose(ended -> working);
    }

    /** What is completed by its owner in another way leaves neither a place nor a hold. */
    <T> CompletableFuture<T> take(long waitNanos, long leaseMs, Function<FutureHold, T> outcome) {
        Acquire acquire = new Acquire(engine, claim, leaseMs, null, waitNanos, false);
        CompletableFuture<T> future = new CompletableFuture<>();
        acquire.begin().whenComplete((granted, failed) -> {
            FutureHold hold = granted == null ? null : new FutureHold(engine, granted);
            engine.callbacks.execute(() -> {
                boolean taken = failed == null
                        ? future.complete(outcome.apply(hold))
                        : future.completeExceptionally(Engine.cause(failed));
                if (!taken && hold != null) {
                    engine.keeper.abandon(granted);
                }
            });
        });
        future.whenComplete((taken, failed) -> acquire.giveUp()); // It is over, unless by its owner.
        return future;
    }
}
