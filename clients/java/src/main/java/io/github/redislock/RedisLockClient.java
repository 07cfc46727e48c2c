package io.github.redislock;

import java.time.Duration;
import java.util.concurrent.Callable;
import java.util.function.Consumer;

/**
 * Gives out locks. One client serves all threads of a program; two clients are two owners, whatever
 * the thread.
 *
 * <p>Locks are views: two that were made with one name are the same lock, and it is reentrant
 * through either. What a thread holds is kept in the client, with one token and one fence per
 * thread and name from the first {@code lock()} to the last {@code unlock()}.
 */
public interface RedisLockClient extends AutoCloseable {
    /**
     * Connects to one server with {@link LockOptions#defaults()}.
     *
     * @param url {@code redis://[[user]:password@]host[:port][/database]}, or {@code rediss://}
     * @return a client, to be closed
     */
    static RedisLockClient connect(String url) {
        return connect(url, LockOptions.defaults());
    }

    /**
     * Connects to one server, by Jedis where that is on the class path, otherwise by Lettuce. Every
     * thread that asks or waits has a connection of its own for that time, so nobody stands behind
     * a waiting one; up to eight idle ones are kept.
     *
     * <p>{@link JedisLocks} and {@link LettuceLocks} make a client over one that the application
     * has, also for Sentinel and Cluster.
     *
     * @param url {@code redis://[[user]:password@]host[:port][/database]}, or {@code rediss://}, with
     *     which a waiting thread notices an interrupt only at the end of a slice
     * @param options what may be chosen
     * @return a client, to be closed
     * @throws IllegalStateException when neither driver is on the class path
     */
    static RedisLockClient connect(String url, LockOptions options) {
        if (SyncClient.has("redis.clients.jedis.Connection")) {
            return JedisLocks.connect(url, options);
        }
        if (SyncClient.has("io.lettuce.core.RedisClient")) {
            return LettuceLocks.connect(url, options);
        }
        throw new IllegalStateException(
                "there is no driver on the class path: add redis.clients:jedis (5 to 8) or"
                        + " io.lettuce:lettuce-core (6.3 to 7) to the dependencies");
    }

    /**
     * A lock that one thread holds at a time.
     *
     * @param name its key
     * @return a view; the same lock as the write lock of that name
     */
    RedisLock lock(String name);

    /**
     * A lock that one writer or any number of readers hold.
     *
     * @param name its key
     * @return a view
     */
    RedisReadWriteLock readWriteLock(String name);

    /**
     * A lock that a number of holders share, each with a permit of its own.
     *
     * @param name its key
     * @param permits how many may be held at once, from 1 on
     * @return a view
     */
    RedisSemaphore semaphore(String name, int permits);

    /**
     * Several locks as one, granted in one step. In a cluster their keys must be of one slot.
     *
     * @param locks of this client, each of another name: {@link #lock}, or a side of {@link
     *     #readWriteLock}
     * @return a view
     */
    RedisMultiLock multiLock(RedisLock... locks);

    /**
     * Runs a job unless it runs elsewhere, or ran elsewhere within {@code lockAtLeastFor}: for jobs
     * that the schedulers of several processes start at the same time. It does not wait.
     *
     * @param name the lock's key
     * @param lockAtMostFor the lease. It is not renewed, so it must be longer than the job takes:
     *     a job that takes longer may run twice
     * @param lockAtLeastFor how long nobody else runs it, counted from the grant by the server's
     *     clock, however soon the job ends. Zero for no longer than it runs
     * @param job gets the hold, for its fence and for {@link RedisHold#exec}
     * @return whether it ran here
     * @throws ModuleMissingException in the fallback, with a {@code lockAtLeastFor}; the job
     *     was not run
     */
    boolean runOnce(
            String name, Duration lockAtMostFor, Duration lockAtLeastFor, Consumer<RedisHold> job);

    /**
     * Gives the value under a key. One of all callers makes it, and the others wait and get it. See
     * {@link Once}, which also says for how long.
     *
     * <p>The calling thread makes it. An error of the maker goes to its caller, and the next one in
     * the queue makes the value; a caller that has found an early value gets that. A maker whose
     * lock is lost meanwhile gets what it has made, and nothing is stored.
     *
     * @param <T> what the value is
     * @param name the value's key, an ordinary string. In a cluster a name with a brace needs a
     *     hash tag
     * @param how for how long, and how it becomes bytes
     * @param make makes it, not null
     * @return the value
     * @throws java.util.concurrent.TimeoutException when another client makes it for longer than
     *     {@link Once#patience}
     * @throws InterruptedException when the calling thread is interrupted while it waits
     * @throws ModuleMissingException on a server without the module, also with {@link
     *     LockOptions#fallback}, or with one older than 0.4.0
     * @throws Exception that of the maker
     */
    <T> T once(String name, Once<T> how, Callable<? extends T> make) throws Exception;

    /**
     * Stops the watchdog and closes the connections. What is still held is not released: it ends
     * with its lease. A waiter gives up its place and gets an {@link IllegalStateException}.
     */
    @Override
    void close();
}
