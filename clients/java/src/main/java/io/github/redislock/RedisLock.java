package io.github.redislock;

/**
 * A {@link java.util.concurrent.locks.Lock} that is kept by the server, reentrant per thread, fair, and with a lease.
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
 * throw the exception of the driver.
 */
public interface RedisLock extends ThreadLock {
    /**
     * Has the server run one command only if this thread holds the lock now, in one step: {@code
     * lock.exec("SET", "stock:42", 7)}. So an owner that has been replaced is refused at the
     * server.
     *
     * <p>It is sent once. After a failure of the connection
     * it may have run or not.
     *
     * @param command its name
     * @param arguments strings, byte arrays, numbers
     * @return the command's reply, with strings for bytes
     * @throws IllegalMonitorStateException when the thread does not hold it, or has lost it.
     *     Nothing was done then
     * @throws ModuleMissingException when the server does not know {@code LOCK.EXEC}
     */
    Object exec(String command, Object... arguments);

    /**
     * Asks the server whether anybody holds it in this lock's way, exclusively or shared, or an old
     * client in its own.
     *
     * @return whether somebody does
     */
    boolean isLocked();

    /**
     * Asks the server when the lock is free by itself.
     *
     * @return milliseconds, or -2 when it is free
     */
    long remainTimeToLive();

    /**
     * Takes the lock away from whoever holds it, readers and writers alike; the next waiter has it
     * at once. If the calling thread holds it with others as one, it gives the others back.
     *
     * @return whether anybody held it
     */
    boolean forceUnlock();

    /**
     * The lock's key.
     *
     * @return as it was given
     */
    String getName();
}
