package io.github.redislock;

import redis.clients.jedis.ConnectionFactory;
import redis.clients.jedis.ConnectionPoolConfig;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.DefaultJedisSocketFactory;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.JedisClientConfig;
import redis.clients.jedis.JedisSocketFactory;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.UnifiedJedis;
import redis.clients.jedis.providers.PooledConnectionProvider;
import redis.clients.jedis.util.JedisURIHelper;

import java.net.Socket;
import java.net.URI;
import java.time.Duration;
import java.util.function.Consumer;
import java.util.stream.Stream;

/**
 * Gives out locks. One client serves all threads of a program; two clients are two owners, whatever
 * the thread.
 *
 * <p>Locks are views: two that were made with one name are the same lock, and it is reentrant
 * through either. What a thread holds is kept in the client, with one token and one fence per
 * thread and name from the first {@code lock()} to the last {@code unlock()}.
 */
public final class RedisLockClient implements AutoCloseable {
    private final Runnable disconnecting;
    private final LockOptions options;
    private final Commands commands;
    private final Holds holds;

    private RedisLockClient(UnifiedJedis jedis, LockOptions options, Runnable disconnecting) {
        if (options.linger().isPresent()) {
            disconnecting.run();
            throw new IllegalArgumentException(
                    "linger binds a hold to a connection, and this client's come from a pool: use"
                            + " LettuceLockClient");
        }
        this.disconnecting = disconnecting;
        this.options = options;
        this.commands = new Commands(jedis);
        this.holds = new Holds(commands, options);
    }

    /**
     * Connects to one server with {@link LockOptions#defaults()}.
     *
     * @param url {@code redis://[[user]:password@]host:port[/database]}, or {@code rediss://}
     * @return a client, to be closed
     */
    public static RedisLockClient connect(String url) {
        return connect(url, LockOptions.defaults());
    }

    /**
     * Connects to one server. Every thread that asks or waits has a connection of its own for that
     * time, so nobody stands behind a waiting one; up to eight idle ones are kept.
     *
     * @param url {@code redis://[[user]:password@]host:port[/database]}, or {@code rediss://}, with
     *     which a waiting thread notices an interrupt only at the end of a slice
     * @param options what may be chosen
     * @return a client, to be closed
     */
    public static RedisLockClient connect(String url, LockOptions options) {
        URI uri = URI.create(url);
        HostAndPort address = JedisURIHelper.getHostAndPort(uri);
        int answerMs = options.answerMs();
        JedisClientConfig config =
                DefaultJedisClientConfig.builder(uri)
                        .connectionTimeoutMillis(answerMs)
                        .socketTimeoutMillis(answerMs)
                        // Above every BLOCK that is sent; the default is for ever. A shorter one
                        // has a shorter time-out.
                        .blockingSocketTimeoutMillis(
                                Math.toIntExact(options.slice().toMillis() + answerMs))
                        .build();
        ConnectionPoolConfig pool = new ConnectionPoolConfig();
        // No more than the threads: a bound would have unlock() wait for a connection that a waiter
        // has.
        pool.setMaxTotal(-1);
        InterruptibleSockets sockets = new InterruptibleSockets(address, config);
        JedisSocketFactory socketFactory =
                config.isSsl() ? () -> tlsSocket(address, config) : sockets;
        ConnectionFactory factory =
                ConnectionFactory.builder()
                        .clientConfig(config)
                        .socketFactory(socketFactory)
                        .connectionBuilder(
                                new TimedConnection.Builder()
                                        .clientConfig(config)
                                        .socketFactory(socketFactory))
                        .build();
        UnifiedJedis jedis =
                RedisClient.builder()
                        .clientConfig(config)
                        .connectionProvider(new PooledConnectionProvider(factory, pool))
                        .build();
        return new RedisLockClient(
                jedis,
                options,
                () -> {
                    jedis.close();
                    sockets.close();
                });
    }

    private static Socket tlsSocket(HostAndPort address, JedisClientConfig config) {
        int leftMs = AnswerTime.leftMs(config.getConnectionTimeoutMillis());
        return new DefaultJedisSocketFactory(
                        address,
                        DefaultJedisClientConfig.builder()
                                .from(config)
                                .connectionTimeoutMillis(leftMs)
                                .build())
                .createSocket();
    }

    /**
     * Works with a Jedis client of your own, as for Sentinel or Cluster. Its {@code
     * blockingSocketTimeoutMillis} must be above the slice, and at a silent server a wait of any
     * length takes as long as that; its pool larger than the number of
     * threads that wait at once, and its own retries few. A waiting thread notices an interrupt at
     * the end of a slice.
     *
     * @param jedis stays yours to close
     * @param options what may be chosen
     * @return a client, to be closed before {@code jedis}
     */
    public static RedisLockClient over(UnifiedJedis jedis, LockOptions options) {
        return new RedisLockClient(jedis, options, () -> {});
    }

    /**
     * A lock that one thread holds at a time.
     *
     * @param name its key
     * @return a view; the same lock as the write lock of that name
     */
    public RedisLock lock(String name) {
        return new RedisLock(commands, options, holds, name, Mode.EXCLUSIVE);
    }

    /**
     * A lock that one writer or any number of readers hold.
     *
     * @param name its key
     * @return a view
     */
    public RedisReadWriteLock readWriteLock(String name) {
        return new RedisReadWriteLock(
                lock(name), new RedisLock(commands, options, holds, name, Mode.SHARED));
    }

    /**
     * A lock that a number of holders share, each with a permit of its own.
     *
     * @param name its key
     * @param permits how many may be held at once, from 1 on
     * @return a view
     */
    public RedisSemaphore semaphore(String name, int permits) {
        return new RedisSemaphore(commands, options, holds, Claim.permit(name, permits));
    }

    /**
     * Several locks as one, granted in one step. In a cluster their keys must be of one slot.
     *
     * @param locks of this client, each of another name: {@link #lock}, or a side of {@link
     *     #readWriteLock}
     * @return a view
     */
    public RedisMultiLock multiLock(RedisLock... locks) {
        for (RedisLock lock : locks) {
            if (lock.holds != holds) {
                throw new IllegalArgumentException(lock.getName() + " is of another client");
            }
        }
        Claim all = Claim.all(Stream.of(locks).map(lock -> lock.claim).toList());
        return new RedisMultiLock(commands, options, holds, all);
    }

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
     * @throws UnsupportedOperationException when the server does not know {@code RELEASE ATLEAST};
     *     the job was not run
     */
    public boolean runOnce(
            String name,
            Duration lockAtMostFor,
            Duration lockAtLeastFor,
            Consumer<RedisHold> job) {
        return new OneRun(commands, options, holds, name, lockAtMostFor, lockAtLeastFor).run(job);
    }

    /**
     * Stops the watchdog and closes the connections. What is still held is not released: it ends
     * with its lease. A waiter gives up its place and gets a {@link
     * redis.clients.jedis.exceptions.JedisException}.
     */
    @Override
    public void close() {
        holds.close();
        disconnecting.run();
    }
}
