package io.github.redislock;

import java.time.Duration;
import java.util.concurrent.CompletableFuture;

/** What {@link Keeper} does for one hold, as futures. */
record FutureHold(Engine engine, Hold hold, CompletableFuture<String> lost) implements AsyncHold {
    FutureHold(Engine engine, Hold hold) {
        this(engine, hold, new CompletableFuture<>());
        hold.whenLost = reason -> engine.callbacks.execute(() -> lost.complete(reason));
        engine.keeper.watch(hold);
    }

    @Override
    public String name() {
        return hold.claim.title();
    }

    @Override
    public long fence() {
        return hold.fence;
    }

    @Override
    public boolean isHeld() {
        return !hold.isEnded();
    }

    @Override
    public CompletableFuture<Boolean> check() {
        return isHeld() ? called(engine.keeper.check(hold)) : Engine.done(false);
    }

    @Override
    public CompletableFuture<Object> exec(String command, Object... arguments) {
        return called(engine.keeper.exec(hold, command, arguments));
    }

    @Override
    public CompletableFuture<Boolean> renew(Duration ttl) {
        return called(engine.keeper.set(hold, Lease.ms(ttl)));
    }

    @Override
    public CompletableFuture<String> lost() {
        return lost.copy();
    }

    @Override
    public CompletableFuture<Boolean> unlock(Duration atLeast) {
        long leastMs = Lease.leastMs(atLeast);
        return isHeld() ? called(engine.keeper.release(hold, leastMs)) : Engine.done(false);
    }

    /** Where nobody will try it again. */
    CompletableFuture<Boolean> unlockAtLast() {
        return isHeld() ? called(engine.keeper.releaseAtLast(hold)) : Engine.done(false);
    }

    /** Its continuations run on the executor that was given, and keep nobody else waiting. */
    private <T> CompletableFuture<T> called(CompletableFuture<T> done) {
        CompletableFuture<T> future = new CompletableFuture<>();
        done.whenCompleteAsync(Engine.settle(future), engine.callbacks);
        return future;
    }
}
