package io.github.redislock;

import redis.clients.jedis.Connection;
import redis.clients.jedis.exceptions.JedisConnectionException;

/** Where connections of Jedis come from. */
interface JedisConnections extends AutoCloseable {
    /** A connection for one command. */
    interface Loan {
        Connection connection();

        /** Gives it back, or closes it where it is broken. */
        void end(boolean broken);
    }

    /**
     * Lends a connection. Those that wait have connections of their own, so that no command stands
     * behind a waiting one.
     */
    Loan take(boolean waits) throws JedisConnectionException;

    @Override
    void close();
}
