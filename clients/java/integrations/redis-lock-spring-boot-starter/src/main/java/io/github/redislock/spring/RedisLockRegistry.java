package io.github.redislock.spring;

import io.github.redislock.*;

import org.springframework.beans.factory.DisposableBean;
import org.springframework.integration.support.locks.*;
import org.springframework.util.ClassUtils;

import java.time.Duration;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.ConcurrentHashMap;

/**
 * Spring Integration's {@link LockRegistry} with locks that the server keeps. Two registries are
 * two processes: what a thread holds by one is not held by the other.
 *
 * <p>One class serves Spring Integration 6 and 7, of which only the latter has type arguments.
 */
@SuppressWarnings("rawtypes")
public final class RedisLockRegistry
        implements ExpirableLockRegistry, RenewableLockRegistry, DisposableBean {
    /** The prefix of keys, unless another one is given. */
    public static final String DEFAULT_PREFIX = "lock-registry:";

    private static final boolean DISTRIBUTED = ClassUtils.isPresent(
            "org.springframework.integration.support.locks.DistributedLock",
            RedisLockRegistry.class.getClassLoader());

    private static final Duration LONGEST_GOODBYE = Duration.ofSeconds(1);

    private final Map<RedisRegistryLock.Held, Boolean> holds = new ConcurrentHashMap<>();
    private final RedisLockClient client;
    private final String prefix;
    private final Duration ttl;

    /**
     * With {@link #DEFAULT_PREFIX}.
     *
     * @param client stays the caller's to close
     */
    public RedisLockRegistry(RedisLockClient client) {
        this(client, DEFAULT_PREFIX, LockOptions.defaults().ttl());
    }

    /**
     * With a prefix.
     *
     * @param client stays the caller's to close
     * @param prefix of every key on the server
     * @param ttl that {@link #renewLock(Object)} gives a hold with a ttl of its own
     */
    public RedisLockRegistry(RedisLockClient client, String prefix, Duration ttl) {
        this.client = Objects.requireNonNull(client, "client");
        this.prefix = Objects.requireNonNull(prefix, "prefix");
        this.ttl = Objects.requireNonNull(ttl, "ttl");
    }

    /**
     * The lock of a key.
     *
     * @param lockKey of which the text is taken, after the registry's prefix
     * @return a view: two of one key are the same lock
     */
    @Override
    public RedisRegistryLock obtain(Object lockKey) {
        String key = prefix + Objects.requireNonNull(lockKey, "lockKey");
        RedisLock lock = client.lock(key);
        return DISTRIBUTED
                ? DistributedRegistryLock.of(lock, holds)
                : new RedisRegistryLock(lock, holds);
    }

    /**
     * Sees that a hold of the calling thread goes on. One without a ttl of its own is renewed
     * anyway, so the server is only asked whether it is there still. One with a ttl gets the
     * registry's from now on.
     *
     * @param lockKey of a lock that the calling thread holds
     * @throws IllegalStateException when the lock was lost
     * @throws IllegalMonitorStateException when the thread does not hold it
     */
    @Override
    public void renewLock(Object lockKey) {
        RedisRegistryLock lock = obtain(lockKey);
        refuseLost(lock, lock.isRenewed() ? lock.check() : lock.renew(ttl));
    }

    /**
     * Sets the deadline of a hold of the calling thread. From then on it ends by itself, also if it
     * had no ttl of its own before.
     *
     * @param lockKey of a lock that the calling thread holds
     * @param ttl from now on
     * @throws IllegalStateException when the lock was lost
     * @throws IllegalMonitorStateException when the thread does not hold it
     */
    @Override
    public void renewLock(Object lockKey, Duration ttl) {
        RedisRegistryLock lock = obtain(lockKey);
        refuseLost(lock, lock.renew(ttl));
    }

    private static void refuseLost(RedisRegistryLock lock, boolean held) {
        if (!held) {
            throw new IllegalStateException(lock.getKey() + " cannot be renewed: it was lost");
        }
    }

    /**
     * Does nothing, because nothing is kept of a lock that nobody holds.
     *
     * @param age of no meaning here
     */
    @Override
    public void expireUnusedOlderThan(long age) {
        // See above.
    }

    /**
     * Waits a second at most for threads that are about to unlock: Spring's leader initiator does
     * so in its own thread after it was stopped. What is held after that ends with its ttl.
     */
    @Override
    public void destroy() throws InterruptedException {
        long end = System.nanoTime() + LONGEST_GOODBYE.toNanos();
        while (holds.keySet().stream().anyMatch(held -> held.thread().isAlive())
                && end - System.nanoTime() > 0) {
            Thread.sleep(10);
        }
    }
}
