package io.github.redislock;

import java.util.List;
import java.util.concurrent.*;
import java.util.function.Function;
import java.util.function.Supplier;

/**
 * One call for a value: looks whether it is there, asks by LOCK.ONCE where it is not or is early,
 * and makes it where that gives the lock. The calling thread does so step by step, or futures do.
 */
final class OnceRun<T> {
    private final Engine engine;
    private final String name;
    private final Once<T> how;
    private final Claim claim;
    private final long beganNanos = System.nanoTime();

    /** What was found, and will do if no new value comes about. Null for none. */
    private volatile byte[] old;

    OnceRun(Engine engine, String name, Once<T> how) {
        this.engine = engine;
        this.name = name;
        this.how = how;
        // A value must not be early from its first moment on.
        long earlyMs = Math.min(how.early().get().toMillis(), how.keep().toMillis() / 2);
        this.claim = Claim.once(name, earlyMs);
    }

    T get(Callable<? extends T> make) throws Exception {
        if (Thread.interrupted()) {
            throw new InterruptedException("before asking for " + name);
        }
        if (Engine.join(this::isFresh)) {
            return opened(old);
        }
        Acquire acquire = acquire(true);
        Hold hold;
        try {
            hold = acquire.await(true);
        } catch (RuntimeException failed) {
            return opened(orOld(failed));
        }
        if (!isMaker(acquire, hold)) {
            return opened(found());
        }
        byte[] made;
        try {
            made = how.pack().apply(make.call());
        } catch (Throwable failed) {
            Engine.join(() -> engine.keeper.abandon(hold));
            return opened(instead(failed));
        }
        Engine.join(() -> store(hold, made));
        return opened(made);
    }

    /** To complete the future in another way gives the place up, and leaves a maker to its end. */
    CompletableFuture<T> begin(Supplier<? extends CompletionStage<? extends T>> make) {
        CompletableFuture<T> future = new CompletableFuture<>();
        isFresh()
                .thenCompose(fresh -> fresh ? Engine.done(old) : asked(future, make))
                .thenApplyAsync(this::opened, engine.callbacks)
                .whenCompleteAsync(Engine.settle(future), engine.callbacks); // A failure, too.
        return future;
    }

    private CompletableFuture<byte[]> asked(
            CompletableFuture<T> future,
            Supplier<? extends CompletionStage<? extends T>> make) {
        Acquire acquire = acquire(false);
        CompletableFuture<Hold> granted = acquire.begin();
        future.whenComplete((value, failed) -> acquire.giveUp());
        return granted.exceptionally(failed -> {
                    orOld(Engine.cause(failed));
                    return null;
                })
                .thenCompose(hold ->
                        isMaker(acquire, hold) ? made(hold, make) : Engine.done(found()));
    }

    private CompletableFuture<byte[]> made(
            Hold hold, Supplier<? extends CompletionStage<? extends T>> make) {
        return Engine.done(null)
                .thenComposeAsync(
                        any -> make.get().thenApply(value -> how.pack().apply(value)),
                        engine.callbacks)
                .handle((bytes, failed) -> failed == null
                        ? store(hold, bytes).thenApply(stored -> bytes)
                        : engine.keeper
                                .abandon(hold)
                                .thenApply(gone -> instead(Engine.cause(failed))))
                .thenCompose(Function.identity());
    }

    /** Whether the value is there and not early. What passes is as no value: the wait bears it. */
    private CompletableFuture<Boolean> isFresh() {
        Request get = new Request("GET").key(name);
        get.isRaw = true;
        return engine.sendAll(List.of(get, new Request("PTTL").key(name)), engine.answerEnd())
                .handle((replies, failed) -> {
                    if (failed != null) {
                        if (engine.kind(failed) == Replies.Kind.FINAL) {
                            throw Engine.thrown(Engine.cause(failed));
                        }
                        return false;
                    }
                    old = (byte[]) replies.get(0);
                    long leftMs = (Long) replies.get(1);
                    return old != null
                            && (claim.earlyMs() <= 0 || leftMs < 0 || leftMs > claim.earlyMs());
                });
    }

    /** Nobody waits because of a value that is there. */
    private Acquire acquire(boolean owned) {
        long leftNanos = how.patience().toNanos() - (System.nanoTime() - beganNanos);
        long waitNanos = old == null ? leftNanos : 0;
        return new Acquire(engine, claim, Lease.RENEWED, null, waitNanos, owned);
    }

    /** Nobody fails because of one, either, unless it will never be made again. */
    private byte[] orOld(Throwable failed) {
        boolean never = failed instanceof Error || failed instanceof UnsupportedOperationException;
        if (old == null || never) {
            throw Engine.thrown(failed);
        }
        return old;
    }

    /** Its hold is renewed until it is stored or abandoned, whatever becomes of the thread. */
    private boolean isMaker(Acquire acquire, Hold hold) {
        if (hold != null || acquire.value != null) {
            old = acquire.value; // Null where it has ended meanwhile.
        }
        if (hold != null) {
            engine.keeper.watch(hold);
        }
        return hold != null;
    }

    private byte[] found() {
        return orOld(new TimeoutException(name + " is being made"));
    }

    private CompletableFuture<Void> store(Hold hold, byte[] made) {
        long keepMs = how.keep().toMillis();
        return engine.keeper.store(hold, Request.ofHold(
                "LOCK.EXEC", claim.name(), hold.token, "SET", name, made, "PX", keepMs));
    }

    /** The old value in place of one that could not be made. */
    private byte[] instead(Throwable failed) {
        if (old == null || failed instanceof Error) {
            throw Engine.thrown(failed);
        }
        String text = "A new value of " + name + " could not be made: the old one is used";
        Engine.LOG.log(System.Logger.Level.WARNING, text, failed);
        return old;
    }

    private T opened(byte[] bytes) {
        return how.unpack().apply(bytes);
    }
}
