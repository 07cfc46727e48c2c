package io.github.redislock;

import redis.clients.jedis.*;
import redis.clients.jedis.util.Pool;

import java.util.Map;

/**
 * Makes a {@link RedisLockClient} over a client of Jedis 5 to 8 that the application has. What it
 * is given stays the application's to close, after the {@code RedisLockClient}.
 */
public final class JedisLocks {
    private JedisLocks() {}

    static RedisLockClient connect(String url, LockOptions options) {
        return new SyncClient(JedisDriver.to(url, options.answerMs()), options);
    }

    /**
     * Works with one server. Every thread that asks or waits has a connection of its own for that
     * time, and without TLS it notices an interrupt at once.
     *
     * @param server its address
     * @param config the user, the database, TLS, and the time-outs of an answer
     * @param options what may be chosen
     * @return a client, to be closed
     */
    public static RedisLockClient to(
            HostAndPort server, JedisClientConfig config, LockOptions options) {
        return new SyncClient(JedisDriver.to(server, config), options);
    }

    /**
     * Works over whatever is a {@code UnifiedJedis}. A lock over {@code JedisPooled}, {@code
     * RedisClient}, {@code JedisCluster} or {@code RedisClusterClient} has connections of its own,
     * made as their pools make them. Over {@code JedisSentineled} and others it uses their pools:
     * leave room there, as an unlock needs a connection, too. At most four threads wait with a
     * connection of such a pool in hand; the others ask every 50 ms, at their places in the queue.
     * A waiting thread notices an interrupt at the end of a slice.
     *
     * @param jedis stays yours to close. Where its pools are used, set its {@code
     *     blockingSocketTimeoutMillis}, and above the slice. Without it a waiter never notices a
     *     server that died without a word
     * @param options what may be chosen; {@code linger} only with a client of one server
     * @return a client, to be closed before {@code jedis}
     */
    public static RedisLockClient over(UnifiedJedis jedis, LockOptions options) {
        return new SyncClient(driver(jedis), options);
    }

    /**
     * Works over a {@code JedisPool} or a {@code JedisSentinelPool}. It has connections of its own,
     * made as the pool makes them, and takes none from the pool, so that an exhausted one stops
     * neither an unlock nor a renewal. A waiting thread notices an interrupt at the end of a slice.
     *
     * @param pool stays yours to close
     * @param options what may be chosen
     * @return a client, to be closed before {@code pool}
     */
    public static RedisLockClient over(Pool<Jedis> pool, LockOptions options) {
        return new SyncClient(JedisDriver.beside(pool), options);
    }

    @SuppressWarnings("unchecked")
    private static Driver driver(UnifiedJedis jedis) {
        if (called(jedis, "getPool") instanceof Pool<?> pool) {
            return JedisDriver.beside(pool);
        }
        if (called(jedis, "getClusterNodes") instanceof Map<?, ?>) {
            return new JedisClusterDriver(
                    jedis, () -> (Map<String, Pool<?>>) called(jedis, "getClusterNodes"));
        }
        return new UnifiedJedisDriver(jedis, UnifiedJedisDriver.WAITERS);
    }

    /** What a public method gives, which the classes of some versions have; otherwise null. */
    private static Object called(UnifiedJedis jedis, String method) {
        try {
            return jedis.getClass().getMethod(method).invoke(jedis);
        } catch (ReflectiveOperationException absent) {
            return null;
        }
    }
}
