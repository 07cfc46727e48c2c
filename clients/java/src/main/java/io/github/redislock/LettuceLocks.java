package io.github.redislock;

import io.lettuce.core.*;
import io.lettuce.core.api.StatefulConnection;
import io.lettuce.core.sentinel.api.StatefulRedisSentinelConnection;

import java.time.Duration;

/**
 * Makes a {@link RedisLockClient} over a client of Lettuce 6.3 to 7 that the application has. What
 * it is given stays the application's to shut down, after the {@code RedisLockClient}.
 *
 * <p>All commands share one connection. A waiting thread has one for itself, so that nobody stands
 * behind it, and an interrupt ends it at once. {@link LettuceLockClient} needs neither the thread
 * nor the connection.
 */
public final class LettuceLocks {
    private LettuceLocks() {}

    static RedisLockClient connect(String url, LockOptions options) {
        RedisClient client = RedisClient.create(url);
        Runnable closing = () -> client.shutdown(Duration.ZERO, Duration.ofSeconds(2));
        try {
            return new SyncClient(
                    new LettuceDriver(client, null, options, false, Integer.MAX_VALUE, closing),
                    options);
        } catch (RuntimeException failed) {
            closing.run();
            throw failed;
        }
    }

    /**
     * Works with one server, with the primary that a Sentinel names where the client was made with
     * a {@code redis-sentinel} URI, or in a cluster.
     *
     * @param client stays yours to shut down
     * @param options what may be chosen; {@code linger} not in a cluster
     * @return a client, to be closed before {@code client}
     */
    public static RedisLockClient over(AbstractRedisClient client, LockOptions options) {
        return new SyncClient(new LettuceDriver(client, options, Integer.MAX_VALUE), options);
    }

    /**
     * Works over one connection, or over those to a cluster, and makes no others. So a waiting
     * thread asks every 50 ms, at its place in the queue. With Sentinel give the client: a primary
     * that is demoted closes nothing, so this connection would stay with it.
     *
     * @param connection stays yours to close
     * @param options what may be chosen; {@code linger} not in a cluster
     * @return a client, to be closed before {@code connection}
     */
    public static RedisLockClient over(StatefulConnection<?, ?> connection, LockOptions options) {
        if (connection instanceof StatefulRedisSentinelConnection) {
            throw new IllegalArgumentException("a Sentinel has no locks: give the client");
        }
        return new SyncClient(new LettuceDriver(connection, options), options);
    }
}
