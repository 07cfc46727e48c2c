package io.github.redislock;

import java.time.Duration;
import java.util.Optional;
import java.util.UUID;
import java.util.concurrent.*;
import java.util.function.Function;

/** A view of one key, of several, or of permits. */
record FutureLock(Engine engine, Claim claim) implements AsyncLock, AsyncSemaphore {
    @Override
    public CompletableFuture<AsyncHold> lock() {
        return take(Acquire.ENDLESS, Leases.RENEWED, Function.identity());
    }

    @Override
    public CompletableFuture<Optional<AsyncHold>> tryLock() {
        return tryLock(Duration.ZERO);
    }

    @Override
    public CompletableFuture<Optional<AsyncHold>> tryLock(Duration time) {
        return take(time.toNanos(), Leases.RENEWED, Optional::ofNullable);
    }

    @Override
    public CompletableFuture<Optional<AsyncHold>> tryLock(Duration time, Duration lease) {
        return take(time.toNanos(), Leases.ms(lease), Optional::ofNullable);
    }

    @Override
    public CompletableFuture<AsyncHold> acquire() {
        return lock();
    }

    @Override
    public CompletableFuture<Optional<AsyncHold>> tryAcquire() {
        return tryLock();
    }

    @Override
    public CompletableFuture<Optional<AsyncHold>> tryAcquire(Duration time) {
        return tryLock(time);
    }

    @Override
    public <T> CompletableFuture<T> with(
            Function<AsyncHold, ? extends CompletionStage<T>> work) {
        CompletableFuture<AsyncHold> waiting = lock();
        CompletableFuture<T> result = new CompletableFuture<>();
        result.whenComplete((value, failed) -> waiting.cancel(false)); // Its place, if it waits.
        waiting.thenCompose(hold -> done(work, hold)
                        .handle((value, failed) -> hold.unlock().handle((held, late) ->
                                ended(value, Engine.cause(failed), held, Engine.cause(late))))
                        .thenCompose(Function.identity()))
                .whenComplete(Engine.settle(result));
        return result;
    }

    private <T> T ended(T value, Throwable failed, Boolean held, Throwable late) {
        Throwable why = failed != null || late != null || held
                ? late
                : Replies.notHeld(claim);
        if (failed != null && why != null) {
            failed.addSuppressed(why);
        }
        if (failed != null || why != null) {
            throw new CompletionException(failed == null ? why : failed);
        }
        return value;
    }

    static <T> CompletableFuture<T> done(
            Function<AsyncHold, ? extends CompletionStage<T>> work, AsyncHold hold) {
        try {
            return work.apply(hold).toCompletableFuture();
        } catch (Throwable failed) {
            return CompletableFuture.failedFuture(failed);
        }
    }

    /** What is completed by its owner in another way leaves neither a place nor a hold. */
    <T> CompletableFuture<T> take(long waitNanos, long leaseMs, Function<AsyncHold, T> outcome) {
        String token = UUID.randomUUID().toString();
        long ttlMs = leaseMs == Leases.RENEWED ? engine.ttlMs() : leaseMs;
        Acquire acquire = new Acquire(engine, claim, token, ttlMs, null, waitNanos, false);
        CompletableFuture<T> future = new CompletableFuture<>();
        acquire.begin().whenComplete((grant, failed) -> {
            if (future.isDone() && grant == null) {
                return;
            }
            FutureHold hold = grant == null ? null : hold(grant, token, leaseMs, ttlMs);
            engine.call(() -> {
                boolean taken = failed == null
                        ? future.complete(outcome.apply(hold))
                        : future.completeExceptionally(Engine.cause(failed));
                if (!taken && hold != null) {
                    hold.unlock();
                }
            });
        });
        future.whenComplete((taken, failed) -> acquire.giveUp()); // It is over, unless by its owner.
        return future;
    }

    private FutureHold hold(Acquire.Grant grant, String token, long leaseMs, long ttlMs) {
        Hold hold = engine.keeper.hold(grant, claim, null, token, ttlMs);
        hold.renewed = leaseMs == Leases.RENEWED;
        hold.handedOn = true;
        FutureHold future = new FutureHold(engine, hold);
        engine.keeper.watch(hold);
        return future;
    }
}
