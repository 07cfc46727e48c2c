package io.github.redislock.example;

import redis.clients.jedis.ConnectionPoolConfig;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.JedisClientConfig;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.exceptions.JedisConnectionException;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.util.JedisURIHelper;

import java.net.URI;
import java.util.function.BooleanSupplier;
import java.util.function.Supplier;

/**
 * A Jedis client with the time-outs that suit a lock, and the resending that Jedis leaves to its
 * user.
 */
final class Connections {
    /** The longest BLOCK that is sent; a longer wait is several of them. */
    static final long SLICE_MS = 5_000;

    /**
     * How long the server keeps the place in the queue while no connection waits at it. Longer than
     * a reconnect takes, and short: a worker that died delays those behind it by this.
     */
    static final long GRACE_MS = 5_000;

    private static final long RESEND_PAUSE_MS = 50;

    private Connections() {}

    /** For commands that block for {@code blockMs} at most, or a slice of that. */
    static RedisClient open(URI url, long ttlMs, long blockMs) {
        // An answer that takes a third of the ttl is as good as none: there must be time for
        // another try.
        int answerMs = (int) Math.min(1_000, Math.max(1, ttlMs / 3));
        JedisClientConfig config =
                DefaultJedisClientConfig.builder(url)
                        .connectionTimeoutMillis(answerMs)
                        .socketTimeoutMillis(answerMs)
                        // For commands that block; by default for ever, and then a dead server is
                        // never noticed.
                        .blockingSocketTimeoutMillis(
                                (int) Math.min(blockMs, SLICE_MS) + answerMs)
                        .build();
        // One connection to wait and work on, one for the watchdog, so that neither stands behind
        // the other.
        ConnectionPoolConfig pool = new ConnectionPoolConfig();
        pool.setMaxTotal(2);
        pool.setMaxIdle(2);
        return RedisClient.builder()
                .hostAndPort(JedisURIHelper.getHostAndPort(url))
                .clientConfig(config)
                .poolConfig(pool)
                .build();
    }

    /**
     * Sends again while the server is out of reach and there is no reason to stop; then that is
     * thrown.
     */
    static <T> T resending(BooleanSupplier stop, Supplier<T> command) throws InterruptedException {
        while (true) {
            try {
                return command.get();
            } catch (JedisConnectionException | JedisDataException failed) {
                if (failed instanceof JedisDataException && !passes(failed.getMessage())) {
                    throw failed;
                }
                if (!stop.getAsBoolean()) {
                    System.err.println("sending again: " + failed.getMessage());
                    Thread.sleep(RESEND_PAUSE_MS);
                }
                // Asked right before the sending: what the pause has ended is not sent for.
                if (stop.getAsBoolean()) {
                    throw new JedisConnectionException(failed);
                }
            }
        }
    }

    /** Whether an error tells of a server that starts, moves a slot or changes its role. */
    private static boolean passes(String error) {
        return error.matches("(?s)(UNBLOCKED|TRYAGAIN|LOADING|MASTERDOWN|READONLY)\\b.*");
    }
}
