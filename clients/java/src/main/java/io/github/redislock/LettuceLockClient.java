package io.github.redislock;

import io.lettuce.core.AbstractRedisClient;
import io.lettuce.core.RedisClient;

import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.function.Function;
import java.util.function.Supplier;

/**
 * Gives out locks over <a href="https://github.com/redis/lettuce">Lettuce</a>, for programs that
 * have many waiters. All of them share two connections: one that asks, and one that is told. No
 * thread waits. In a cluster a waiter has connections for itself.
 *
 * <p>It needs {@code io.lettuce:lettuce-core} from 6.3 on the class path, which is an optional
 * dependency. The channel that is told is {@code redis-lock:} and a UUID; the user needs the right
 * to subscribe and to publish to it.
 */
public interface LettuceLockClient extends AutoCloseable {
    /**
     * Connects twice, and subscribes. At the end of each slice a waiter asks again, for the case
     * that a message was lost.
     *
     * <p>In a cluster a waiter has connections for itself, in slices, as a message would have to
     * come by a channel of the key's slot. Beyond 32 waiters at once the others ask every 50 ms, at
     * their places in the queue.
     *
     * @param lettuce stays yours to shut down. It must reconnect by itself, as it does by default
     * @param options what may be chosen; {@code linger} not in a cluster. {@code onLost} is told of
     *     no owner
     * @return a client, to be closed
     */
    static LettuceLockClient connect(AbstractRedisClient lettuce, LockOptions options) {
        boolean told = lettuce instanceof RedisClient;
        int lines = told ? Integer.MAX_VALUE : AsyncClient.MOST_BLOCKED;
        return new AsyncClient(
                new Engine(new LettuceDriver(lettuce, options, lines), options, told));
    }

    /**
     * A lock that one hold has at a time.
     *
     * @param name its key
     * @return a view; the same lock as the write lock of that name
     */
    AsyncLock lock(String name);

    /**
     * The readers' side of the lock of that name.
     *
     * @param name its key
     * @return a view
     */
    AsyncLock readLock(String name);

    /**
     * A lock that a number of holders share, each with a permit of its own. The smallest number of
     * permits that a holder asked for counts.
     *
     * @param name its key
     * @param permits how many may be held at once, from 1 on
     * @return a view
     */
    AsyncLock semaphore(String name, int permits);

    /**
     * Several locks as one, granted in one step. When one of them is lost, so is the whole.
     *
     * @param locks of this client, each of another name: {@link #lock} or {@link #readLock}
     * @return a view
     */
    AsyncLock multiLock(AsyncLock... locks);

    /**
     * Runs a job unless it runs elsewhere, or ran elsewhere within {@code lockAtLeastFor}; see
     * {@link RedisLockClient#runOnce}. It does not wait.
     *
     * @param name the lock's key
     * @param lockAtMostFor the lease. It is not renewed, so it must be longer than the job takes
     * @param lockAtLeastFor how long nobody else runs it, counted from the grant by the server's
     *     clock. Zero for no longer than it runs
     * @param job begins the work and gives a future of its end
     * @return whether it ran here, when the job is over and the lock is given back. It fails as the
     *     job does
     */
    CompletableFuture<Boolean> runOnce(
            String name,
            Duration lockAtMostFor,
            Duration lockAtLeastFor,
            Function<AsyncHold, ? extends CompletionStage<?>> job);

    /**
     * Gives the value under a key, as {@link RedisLockClient#once} does. To cancel the future gives
     * the place up; a maker that has begun goes on, and what it makes is stored.
     *
     * @param <T> what the value is
     * @param name the value's key, an ordinary string
     * @param how for how long, and how it becomes bytes
     * @param make begins to make it, in the client's executor, and gives a future of it
     * @return the value. It fails as the maker does, with {@link
     *     java.util.concurrent.TimeoutException} when another client makes it for longer than {@link
     *     Once#patience}, and with {@link ModuleMissingException} where the server does not
     *     know {@code LOCK.ONCE}
     */
    <T> CompletableFuture<T> once(
            String name, Once<T> how, Supplier<? extends CompletionStage<? extends T>> make);

    /**
     * Gives up the places of all that wait, and closes both connections. The waiters' futures fail
     * with an {@link IllegalStateException}. What is held is not released: it ends with its lease.
     */
    @Override
    void close();
}
