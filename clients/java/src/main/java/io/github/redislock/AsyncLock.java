package io.github.redislock;

import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.function.Function;

/**
 * A lock of a {@link LettuceLockClient}, several as one, or a semaphore, of which a hold is a
 * permit. It is not reentrant: each request is another owner. Its futures are completed in the
 * client's executor.
 */
public interface AsyncLock {
    /**
     * Waits in the server's queue until the lock is granted. To cancel the future, or to complete
     * it in another way as {@code orTimeout} does, gives the place up.
     *
     * <p>The hold belongs to whoever gets it: a stage behind this future, as in {@code
     * lock().thenApply(f).orTimeout(…)}, may fail while the hold goes on, and nobody has it then. It
     * is renewed until the client is closed. {@link #with} has no such gap.
     *
     * @return the hold
     */
    CompletableFuture<AsyncHold> lock();

    /**
     * Takes the lock if nobody holds it and nobody waits for it.
     *
     * @return the hold, or nothing
     */
    default CompletableFuture<Optional<AsyncHold>> tryLock() {
        return tryLock(Duration.ZERO);
    }

    /**
     * Waits in the server's queue, for a time. To cancel the future gives the place up.
     *
     * @param time to wait at most
     * @return the hold, or nothing
     */
    CompletableFuture<Optional<AsyncHold>> tryLock(Duration time);

    /**
     * As {@link #tryLock(Duration)}, for a time.
     *
     * @param time to wait at most; with zero it does not wait
     * @param lease after which the hold ends by itself. It is not renewed
     * @return the hold, or nothing
     */
    CompletableFuture<Optional<AsyncHold>> tryLock(Duration time, Duration lease);

    /**
     * Waits for it, does the work, and gives it back when the work is over, whatever comes of it.
     * Nothing that happens to the future leaves a hold behind: to cancel it gives up the place, or,
     * where the work has begun, leaves it to the end of the work.
     *
     * @param <T> what the work gives
     * @param work begins it and gives a future of its end
     * @return what the work gives. It fails as the work does, or with {@link
     *     IllegalMonitorStateException} when the hold was lost before the work was over
     */
    <T> CompletableFuture<T> with(Function<AsyncHold, ? extends CompletionStage<T>> work);
}
