package io.github.redislock;

import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;

/**
 * A lock of a {@link LettuceLockClient}, or several as one. It is not reentrant: each request is
 * another owner. Its futures are completed in the client's executor.
 */
public final class AsyncLock {
    final LettuceLockClient client;
    final Claim claim;

    AsyncLock(LettuceLockClient client, Claim claim) {
        this.client = client;
        this.claim = claim;
    }

    /**
     * Waits in the server's queue until the lock is granted. To cancel the future, or to complete
     * it in another way as {@code orTimeout} does, gives the place up.
     *
     * @return the hold
     */
    public CompletableFuture<AsyncHold> lock() {
        AsyncRequest<AsyncHold> request = new AsyncRequest<>(
                client, claim, AsyncRequest.ENDLESS, ThreadLock.RENEWED, held -> held);
        return request.begin();
    }

    /**
     * Takes the lock if nobody holds it and nobody waits for it.
     *
     * @return the hold, or nothing
     */
    public CompletableFuture<Optional<AsyncHold>> tryLock() {
        return tryLock(Duration.ZERO);
    }

    /**
     * Waits in the server's queue, for a time. To cancel the future gives the place up.
     *
     * @param time to wait at most
     * @return the hold, or nothing
     */
    public CompletableFuture<Optional<AsyncHold>> tryLock(Duration time) {
        return tryLock(time, ThreadLock.RENEWED);
    }

    /**
     * As {@link #tryLock(Duration)}, for a time.
     *
     * @param time to wait at most; with zero it does not wait
     * @param lease after which the hold ends by itself. It is not renewed
     * @return the hold, or nothing
     */
    public CompletableFuture<Optional<AsyncHold>> tryLock(Duration time, Duration lease) {
        return tryLock(time, ThreadLock.leaseMs(lease));
    }

    private CompletableFuture<Optional<AsyncHold>> tryLock(Duration time, long leaseMs) {
        long waitNanos = Math.max(0, time.toNanos());
        AsyncRequest<Optional<AsyncHold>> request =
                new AsyncRequest<>(client, claim, waitNanos, leaseMs, Optional::ofNullable);
        return request.begin();
    }
}
