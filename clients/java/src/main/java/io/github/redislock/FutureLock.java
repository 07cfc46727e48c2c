package io.github.redislock;

import java.time.Duration;
import java.util.Optional;
import java.util.UUID;
import java.util.concurrent.*;
import java.util.function.Function;
import java.util.function.Supplier;

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
        waiting.thenCompose(hold -> begun(() -> work.apply(hold))
                        .handle((value, failed) -> hold.unlock().handle((held, late) -> {
                            boolean lost = failed == null && late == null && !held;
                            Throwable last = lost ? Replies.notHeld(claim) : Engine.cause(late);
                            return ended(value, Engine.cause(failed), last);
                        }))
                        .thenCompose(Function.identity()))
                .whenComplete(Engine.settle(result));
        return result;
    }

    /** The value, unless the work or the giving back failed. */
    static <T> T ended(T value, Throwable failed, Throwable late) {
        if (failed == null && late == null) {
            return value;
        }
        if (failed != null && late != null) {
            failed.addSuppressed(late);
        }
        throw new CompletionException(failed == null ? late : failed);
    }

    static <T> CompletableFuture<T> begun(Supplier<? extends CompletionStage<T>> work) {
        try {
            return work.get().toCompletableFuture();
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
