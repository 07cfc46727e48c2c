package io.github.redislock;

import redis.clients.jedis.Connection;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.exceptions.JedisConnectionException;
import redis.clients.jedis.exceptions.JedisException;
import redis.clients.jedis.util.Pool;

/**
 * Those of a {@code JedisPool} or a {@code JedisSentinelPool} of the application. A waiting thread
 * does not take one from the pool: it has one made in the same way, which follows a failover.
 */
final class JedisPoolConnections implements JedisConnections {
    private final Pool<Jedis> pool;

    JedisPoolConnections(Pool<Jedis> pool) {
        this.pool = pool;
    }

    @Override
    public Loan take(boolean waits) {
        Jedis jedis = waits ? make() : pool.getResource();
        return new Loan() {
            private final int usualMs = jedis.getConnection().getSoTimeout();

            @Override
            public Connection connection() {
                return jedis.getConnection();
            }

            @Override
            public void end(boolean broken) {
                try {
                    if (waits) {
                        jedis.disconnect();
                        return;
                    }
                    if (broken) {
                        jedis.getConnection().setBroken(); // An answer may still be on its way.
                    } else {
                        jedis.getConnection().setSoTimeout(usualMs);
                    }
                    jedis.close();
                } catch (JedisException ignored) {
                    // It was lost.
                }
            }
        };
    }

    private Jedis make() {
        try {
            return pool.getFactory().makeObject().getObject();
        } catch (RuntimeException failed) {
            throw failed;
        } catch (Exception failed) {
            throw new JedisConnectionException("cannot connect", failed);
        }
    }

    /** The pool stays its owner's to close. */
    @Override
    public void close() {}
}
