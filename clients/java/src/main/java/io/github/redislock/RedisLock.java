package io.github.redislock;

import redis.clients.jedis.exceptions.JedisException;

import java.util.Locale;
import java.util.UUID;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.Lock;

/**
 * A {@link Lock} that is kept by the server, reentrant per thread, fair, and with a lease.
 *
 * <p>A hold without a lease of its own is renewed by the client's watchdog until its last {@code
 * unlock()}, its thread's end or {@link RedisLockClient#close()}. With a lease it ends by itself. A
 * nested {@code lock()} asks the server whether the hold is still there, and never shortens it; one
 * without a lease has the watchdog renew it from then on.
 *
 * <p>A hold that is lost takes its whole count with it: the thread holds nothing from then on, the
 * next {@code lock()} is a new hold with a new fence, and each {@code unlock()} that is left over
 * throws {@link IllegalMonitorStateException}.
 *
 * <p>When the server is out of reach for longer than {@link LockOptions#reconnect()}, all methods
 * throw {@link redis.clients.jedis.exceptions.JedisException}.
 */
public final class RedisLock implements Lock {
    /** In place of a lease: until it is unlocked. */
    private static final long RENEWED = 0;

    private final Commands commands;
    private final LockOptions options;
    private final Holds holds;
    private final String name;
    private final Mode mode;

    RedisLock(Commands commands, LockOptions options, Holds holds, String name, Mode mode) {
        this.commands = commands;
        this.options = options;
        this.holds = holds;
        this.name = name;
        this.mode = mode;
    }

    @Override
    public void lock() {
        lockUninterruptibly(RENEWED);
    }

    /**
     * As {@link #lock()}, for a time.
     *
     * @param lease after which it ends by itself
     * @param unit of the lease
     */
    public void lock(long lease, TimeUnit unit) {
        lockUninterruptibly(leaseMs(lease, unit));
    }

    @Override
    public void lockInterruptibly() throws InterruptedException {
        acquire(Long.MAX_VALUE, RENEWED, true);
    }

    /**
     * As {@link #lockInterruptibly()}, for a time.
     *
     * @param lease after which it ends by itself
     * @param unit of the lease
     * @throws InterruptedException when the thread is interrupted; it then holds nothing more than
     *     before
     */
    public void lockInterruptibly(long lease, TimeUnit unit) throws InterruptedException {
        acquire(Long.MAX_VALUE, leaseMs(lease, unit), true);
    }

    /**
     * Does not wait, nor pass those who do: it is false when somebody waits, even if the lock is
     * free this moment.
     */
    @Override
    public boolean tryLock() {
        try {
            return acquire(0, RENEWED, false);
        } catch (InterruptedException never) {
            throw new AssertionError(never);
        }
    }

    @Override
    public boolean tryLock(long time, TimeUnit unit) throws InterruptedException {
        return acquire(Math.max(0, unit.toNanos(time)), RENEWED, true);
    }

    /**
     * As {@link #tryLock(long, TimeUnit)}, for a time.
     *
     * @param time to wait at most
     * @param lease after which it ends by itself
     * @param unit of both
     * @return whether it is held
     * @throws InterruptedException when the thread is interrupted; it then holds nothing more than
     *     before
     */
    public boolean tryLock(long time, long lease, TimeUnit unit) throws InterruptedException {
        return acquire(Math.max(0, unit.toNanos(time)), leaseMs(lease, unit), true);
    }

    /**
     * Gives back one {@code lock()}, and with the last one the lock.
     *
     * @throws IllegalMonitorStateException when the thread does not hold it, or has lost it
     */
    @Override
    public void unlock() {
        Hold hold = held();
        if (hold.count(mode) > 1 || (mode == Mode.SHARED && hold.exclusive > 0)) {
            hold.add(mode, -1);
        } else if (mode == Mode.EXCLUSIVE && hold.shared > 0) {
            downgrade(hold);
        } else {
            release(hold);
        }
    }

    /**
     * There is none.
     *
     * @throws UnsupportedOperationException always
     */
    @Override
    public Condition newCondition() {
        throw new UnsupportedOperationException("a lock of the server has no conditions");
    }

    /**
     * The number to send with every write, so that the resource can refuse an owner that has been
     * replaced.
     *
     * @return the fence of the calling thread's hold
     * @throws IllegalMonitorStateException when the thread does not hold it, or has lost it
     */
    public long fence() {
        return held().fence;
    }

    /**
     * Whether the thread holds it, as far as the client knows: the lease is not over by its own
     * clock and no renewal was refused. Only {@link #fence()} protects what is done after asking.
     *
     * @return whether it does
     */
    public boolean isHeldByCurrentThread() {
        return getHoldCount() > 0;
    }

    /**
     * How often the thread has locked and not unlocked it.
     *
     * @return 0 when it does not hold it, or has lost it
     */
    public int getHoldCount() {
        Hold hold = holds.mine(name);
        return hold == null ? 0 : hold.count(mode);
    }

    /**
     * Asks the server whether anybody holds it in this lock's way, exclusively or shared, or an old
     * client in its own.
     *
     * @return whether somebody does
     */
    public boolean isLocked() {
        try {
            return Resend.once(options, () -> commands.mode(name))
                    .equals(mode.name().toLowerCase(Locale.ROOT));
        } catch (JedisException failed) {
            if (Commands.isForeign(failed)) {
                return true;
            }
            throw failed;
        }
    }

    /**
     * Asks the server when the lock is free by itself.
     *
     * @return milliseconds, or -2 when it is free
     */
    public long remainTimeToLive() {
        return Resend.once(options, () -> commands.ttlMs(name));
    }

    /**
     * Takes the lock away from whoever holds it, readers and writers alike; the next waiter has it
     * at once.
     *
     * @return whether anybody held it
     */
    public boolean forceUnlock() {
        Hold hold = holds.mine(name);
        if (hold != null) {
            holds.drop(hold);
        }
        return Resend.once(options, () -> commands.delete(name));
    }

    /**
     * The lock's key.
     *
     * @return as it was given
     */
    public String getName() {
        return name;
    }

    private Hold held() {
        Hold hold = holds.mine(name);
        if (hold == null || hold.count(mode) == 0) {
            throw notHeld();
        }
        return hold;
    }

    private IllegalMonitorStateException notHeld() {
        return new IllegalMonitorStateException(
                "this thread does not hold " + name + ", or has lost it");
    }

    private static long leaseMs(long lease, TimeUnit unit) {
        if (lease == -1) { // Redisson's word for it.
            return RENEWED;
        }
        if (unit.toMillis(lease) < 1) {
            throw new IllegalArgumentException("a lease is at least a millisecond");
        }
        return unit.toMillis(lease);
    }

    private void lockUninterruptibly(long leaseMs) {
        try {
            acquire(Long.MAX_VALUE, leaseMs, false);
        } catch (InterruptedException never) {
            throw new AssertionError(never);
        }
    }

    private boolean acquire(long waitNanos, long leaseMs, boolean interruptible)
            throws InterruptedException {
        if (interruptible && Thread.interrupted()) {
            throw new InterruptedException("before asking for " + name);
        }
        Hold hold = holds.mine(name);
        boolean covered = hold != null && (hold.exclusive > 0 || mode == Mode.SHARED);
        if (covered && prolong(hold, leaseMs)) {
            hold.add(mode, 1);
            return true;
        }
        return request(covered ? null : hold, waitNanos, leaseMs, interruptible);
    }

    /** Asks the server if a hold is still there, and for as much time as the nested lock wants. */
    private boolean prolong(Hold hold, long leaseMs) {
        hold.renewed |= leaseMs == RENEWED;
        long ttlMs = ttlMs(hold, leaseMs);
        long sentNanos = System.nanoTime();
        if (!Resend.once(options, () -> commands.renew(name, hold.token, ttlMs))) {
            holds.lose(hold, "the server says that it is over");
            return false;
        }
        hold.lease(sentNanos, ttlMs);
        holds.watch(hold);
        return true;
    }

    /**
     * What to ask for: the watchdog's ttl where it renews, otherwise the lease, but no less than is
     * left of {@code hold}.
     */
    private long ttlMs(Hold hold, long leaseMs) {
        if (leaseMs == RENEWED || (hold != null && hold.renewed)) {
            return options.ttl().toMillis();
        }
        return hold == null ? leaseMs : Math.max(leaseMs, hold.leftMs());
    }

    /** Asks for a new hold, or with {@code reader} for the conversion of a shared one. */
    private boolean request(Hold reader, long waitNanos, long leaseMs, boolean interruptible)
            throws InterruptedException {
        // Asked for anew, so that nothing that is still on its way for an earlier hold can touch
        // this one.
        String token = reader == null ? UUID.randomUUID().toString() : reader.token;
        long ttlMs = ttlMs(reader, leaseMs);
        Acquisition.Grant grant;
        try {
            grant =
                    new Acquisition(
                                    commands,
                                    options,
                                    holds,
                                    name,
                                    mode,
                                    token,
                                    ttlMs,
                                    reader,
                                    interruptible)
                            .await(waitNanos);
        } catch (JedisException failed) {
            if (!Commands.isDeadlock(failed)) {
                throw failed;
            }
            if (waitNanos != Long.MAX_VALUE) {
                return false;
            }
            throw new LockDeadlockException(name);
        }
        if (grant == null) {
            return false;
        }
        take(reader, token, grant, leaseMs, ttlMs);
        return true;
    }

    private void take(
            Hold reader, String token, Acquisition.Grant grant, long leaseMs, long ttlMs) {
        boolean converted = reader != null && reader.fence == grant.fence() && !reader.isOver();
        if (reader != null && !converted) {
            holds.lose(reader, "it ended while it waited to become the writer");
        }
        Hold hold =
                converted ? reader : new Hold(name, Thread.currentThread(), token, grant.fence());
        hold.add(mode, 1);
        hold.renewed |= leaseMs == RENEWED;
        hold.lease(grant.sentNanos(), ttlMs);
        if (converted) {
            holds.watch(hold);
        } else {
            holds.add(hold);
        }
    }

    /** The last write lock goes and read locks stay: one step on the server. */
    private void downgrade(Hold hold) {
        long ttlMs = hold.renewed ? options.ttl().toMillis() : hold.leftMs();
        long sentNanos = System.nanoTime();
        Long fence =
                Resend.once(
                        options, () -> commands.tryAcquire(Mode.SHARED, name, hold.token, ttlMs));
        if (fence == null || fence != hold.fence) {
            holds.lose(hold, "the server says that it is over");
            if (fence
                    != null) { // Another hold than the one that was to be converted: nobody asked
                               // for it.
                Resend.once(options, () -> commands.release(name, hold.token));
            }
            throw notHeld();
        }
        hold.exclusive = 0;
        hold.lease(sentNanos, ttlMs);
        holds.watch(hold);
    }

    private void release(Hold hold) {
        holds.drop(hold);
        // If the reply is lost, the second try cannot tell "released by the first" from "lost
        // before". The lease was not
        // over by the client's clock, so it is taken for the former.
        int[] tries = {0};
        boolean released =
                Resend.once(
                        options,
                        () -> {
                            tries[0]++;
                            return commands.release(name, hold.token);
                        });
        if (!released && tries[0] == 1) {
            throw notHeld();
        }
    }
}
