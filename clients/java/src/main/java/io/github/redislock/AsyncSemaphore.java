package io.github.redislock;

import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.function.Function;

/**
 * A lock of a {@link LettuceLockClient} that a number of holders share. Each permit has its own
 * token and fence. The smallest number of permits that a holder asked for counts.
 */
public interface AsyncSemaphore {
    /**
     * Waits in the server's queue for a permit. To cancel the future gives the place up.
     *
     * @return the permit, to be unlocked
     */
    CompletableFuture<AsyncHold> acquire();

    /**
     * Takes a permit if there is one and nobody waits for it.
     *
     * @return the permit, or nothing
     */
    CompletableFuture<Optional<AsyncHold>> tryAcquire();

    /**
     * Waits in the server's queue, for a time. To cancel the future gives the place up.
     *
     * @param time to wait at most
     * @return the permit, or nothing
     */
    CompletableFuture<Optional<AsyncHold>> tryAcquire(Duration time);

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
