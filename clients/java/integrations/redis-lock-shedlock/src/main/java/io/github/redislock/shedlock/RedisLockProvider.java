package io.github.redislock.shedlock;

import io.github.redislock.RedisHold;
import io.github.redislock.RedisLockClient;

import net.javacrumbs.shedlock.core.*;
import net.javacrumbs.shedlock.support.LockException;

import java.util.Objects;
import java.util.Optional;
import java.util.concurrent.TimeUnit;

/**
 * ShedLock's locks in the redis-lock module. {@code lockAtMostFor} is the ttl of the hold, and
 * {@code lockAtLeastFor} is kept by the server from the grant on. No clock of a client is asked for
 * either of them.
 */
public final class RedisLockProvider implements ExtensibleLockProvider {
    /**
     * The prefix of ShedLock's own providers for Redis. With the same keys both kinds exclude each
     * other, so that instances may be replaced one by one.
     */
    public static final String DEFAULT_PREFIX = "job-lock:default:";

    private final RedisLockClient client;
    private final String prefix;

    /**
     * With {@link #DEFAULT_PREFIX}.
     *
     * @param client stays the caller's to close
     */
    public RedisLockProvider(RedisLockClient client) {
        this(client, DEFAULT_PREFIX);
    }

    /**
     * With a prefix.
     *
     * @param client stays the caller's to close
     * @param prefix of every key on the server
     */
    public RedisLockProvider(RedisLockClient client, String prefix) {
        this.client = Objects.requireNonNull(client, "client");
        this.prefix = Objects.requireNonNull(prefix, "prefix");
    }

    /**
     * Takes a lock if nobody holds it. It does not wait.
     *
     * @return a {@link RedisSimpleLock}, or nothing
     */
    @Override
    public Optional<SimpleLock> lock(LockConfiguration configuration) {
        RedisHold hold;
        try {
            long ttlMs = RedisSimpleLock.ttl(configuration).toMillis();
            hold = client.lock(prefix + configuration.getName())
                    .tryAcquire(0, ttlMs, TimeUnit.MILLISECONDS);
        } catch (InterruptedException cut) {
            Thread.currentThread().interrupt();
            throw new LockException("interrupted before the lock was asked for", cut);
        }
        if (hold == null) {
            return Optional.empty();
        }
        // Before the job is run, as it cannot be kept after it.
        if (hold.fence() == 0 && !configuration.getLockAtLeastFor().isZero()) {
            hold.release();
            throw new UnsupportedOperationException(
                    "lockAtLeastFor is not available in the fallback for a server without the"
                            + " redis-lock module: set it to zero, or load the module");
        }
        return Optional.of(new RedisSimpleLock(configuration, hold, null));
    }
}
