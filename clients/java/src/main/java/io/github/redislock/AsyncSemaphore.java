package io.github.redislock;

import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;

/**
 * A lock of a {@link LettuceLockClient} that a number of holders share. Each permit has its own
 * token and fence. The smallest number of permits that a holder asked for counts.
 */
public final class AsyncSemaphore {
    private final AsyncLock permits;

    AsyncSemaphore(AsyncLock permits) {
        this.permits = permits;
    }

    /**
     * Waits in the server's queue for a permit. To cancel the future gives the place up.
     *
     * @return the permit, to be unlocked
     */
    public CompletableFuture<AsyncHold> acquire() {
        return permits.lock();
    }

    /**
     * Takes a permit if there is one and nobody waits for it.
     *
     * @return the permit, or nothing
     */
    public CompletableFuture<Optional<AsyncHold>> tryAcquire() {
        return permits.tryLock();
    }

    /**
     * Waits in the server's queue, for a time. To cancel the future gives the place up.
     *
     * @param time to wait at most
     * @return the permit, or nothing
     */
    public CompletableFuture<Optional<AsyncHold>> tryAcquire(Duration time) {
        return permits.tryLock(time);
    }
}
