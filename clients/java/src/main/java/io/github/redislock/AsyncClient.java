package io.github.redislock;

import io.github.redislock.Claim.Mode;

import java.time.Duration;
import java.util.concurrent.*;
import java.util.function.Function;
import java.util.function.Supplier;
import java.util.stream.Stream;

/** Gives out what the engine does, as futures. */
record AsyncClient(Engine engine) implements LettuceLockClient {
    /** How many waiters at once have a connection for themselves, in a cluster. */
    static final int MOST_BLOCKED = 32;

    @Override
    public AsyncLock lock(String name) {
        return new FutureLock(engine, Claim.one(name, Mode.EXCLUSIVE));
    }

    @Override
    public AsyncLock readLock(String name) {
        return new FutureLock(engine, Claim.one(name, Mode.SHARED));
    }

    @Override
    public AsyncLock semaphore(String name, int permits) {
        return new FutureLock(engine, Claim.permit(name, permits));
    }

    @Override
    public AsyncLock multiLock(AsyncLock... locks) {
        return new FutureLock(engine, Claim.all(Stream.of(locks).map(this::claim).toList()));
    }

    private Claim claim(AsyncLock lock) {
        if (lock instanceof FutureLock mine && mine.engine() == engine) {
            return mine.claim();
        }
        throw new IllegalArgumentException("a lock is of another client");
    }

    @Override
    public CompletableFuture<Boolean> runOnce(
            String name,
            Duration lockAtMostFor,
            Duration lockAtLeastFor,
            Function<AsyncHold, ? extends CompletionStage<?>> job) {
        long mostMs = Lease.jobMs(lockAtMostFor, lockAtLeastFor);
        FutureLock lock = new FutureLock(engine, Claim.one(name, Mode.EXCLUSIVE));
        return lock.take(0, mostMs, Function.identity()).thenCompose(held -> {
            if (held == null) {
                return Engine.done(false);
            }
            return engine.keeper
                    .beginJob(held.hold(), lockAtLeastFor.toMillis())
                    .thenCompose(begun -> FutureLock.finished(
                            () -> job.apply(held).thenApply(any -> true),
                            () -> engine.keeper.endJob(held.hold())));
        });
    }

    @Override
    public <T> CompletableFuture<T> once(
            String name, Once<T> how, Supplier<? extends CompletionStage<? extends T>> make) {
        return new OnceRun<>(engine, name, how).begin(make);
    }

    @Override
    public void close() {
        engine.close();
    }
}
