package io.github.redislock;

import java.util.concurrent.locks.ReadWriteLock;

/**
 * A writer or any number of readers, first come, first served: a reader does not pass a waiting
 * writer.
 *
 * <p><b>Downgrade</b>, as of {@link java.util.concurrent.locks.ReentrantReadWriteLock}: the writer
 * takes the read lock and then unlocks the write lock. In between nobody else writes, and it keeps
 * its fence. It counts as a reader from then on, even if that {@code unlock()} throws an exception
 * of the driver.
 *
 * <p><b>Upgrade</b>, where the JDK's lock waits for itself for ever: the only reader that takes the
 * write lock becomes the writer in one step, with the fence it has. Beside other readers it waits
 * for them ahead of the line and keeps reading. A second one that asks for the same meanwhile can
 * never be served: its {@code lock()} throws {@link LockDeadlockException}, its {@code tryLock} is
 * false at once.
 */
public interface RedisReadWriteLock extends ReadWriteLock {
    @Override
    RedisLock readLock();

    @Override
    RedisLock writeLock();
}
