package io.github.redislock.shedlock;

import io.github.redislock.RedisHold;

import net.javacrumbs.shedlock.core.*;

import java.time.Duration;
import java.util.Optional;

/** A lock of a {@link RedisLockProvider}. Any thread may unlock or extend it. */
public final class RedisSimpleLock extends AbstractSimpleLock {
    private static final System.Logger LOG = System.getLogger("io.github.redislock");

    private final RedisHold hold;

    /** A moment before the extension; null where it was not extended. */
    private final Long extendedNanos;

    RedisSimpleLock(LockConfiguration configuration, RedisHold hold, Long extendedNanos) {
        super(configuration);
        this.hold = hold;
        this.extendedNanos = extendedNanos;
    }

    /** The ttl that stands for {@code lockAtMostFor}, of which ShedLock allows zero. */
    static Duration ttl(LockConfiguration configuration) {
        Duration atMost = configuration.getLockAtMostFor();
        return atMost.toMillis() < 1 ? Duration.ofMillis(1) : atMost;
    }

    /**
     * The number to send with every write, so that the resource can refuse a job that has been
     * overtaken.
     *
     * @return the fence; an extension does not change it
     */
    public long fence() {
        return hold.fence();
    }

    /**
     * Has the server run one command only if the lock is held now, in one step.
     *
     * @param command its name
     * @param arguments strings, byte arrays, numbers
     * @return the command's reply, with strings for bytes
     * @throws IllegalMonitorStateException when it is not held any more. Nothing was done then
     */
    public Object exec(String command, Object... arguments) {
        return hold.exec(command, arguments);
    }

    /** A lost lock is no error here, as in ShedLock's other providers, but it is logged. */
    @Override
    protected void doUnlock() {
        try {
            release(lockConfiguration.getLockAtLeastFor());
        } catch (IllegalMonitorStateException lost) {
            LOG.log(
                    System.Logger.Level.WARNING,
                    "The lock of {0} was lost before its job ended, so the job may have run twice."
                            + " A job must end within lockAtMostFor.",
                    hold.name());
        }
    }

    /** ShedLock counts {@code lockAtLeastFor} from the extension, the server from the grant. */
    private void release(Duration atLeast) {
        if (extendedNanos == null) {
            hold.release(atLeast);
            return;
        }
        Duration rest = atLeast.minusNanos(System.nanoTime() - extendedNanos);
        if (rest.toMillis() > 0) {
            hold.releaseIn(rest);
        } else {
            hold.release();
        }
    }

    @Override
    protected Optional<SimpleLock> doExtend(LockConfiguration configuration) {
        long nowNanos = System.nanoTime();
        if (!hold.renew(ttl(configuration))) {
            return Optional.empty();
        }
        return Optional.of(new RedisSimpleLock(configuration, hold, nowNanos));
    }
}
