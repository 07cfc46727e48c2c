package io.github.redislock;

import redis.clients.jedis.Connection;
import redis.clients.jedis.JedisClientConfig;
import redis.clients.jedis.PushConsumerChain;
import redis.clients.jedis.util.RedisInputStream;

/** A connection that reads for no longer than {@link AnswerTime} says. */
final class TimedConnection extends Connection {
    static final class Builder extends Connection.Builder {
        @Override
        protected Connection createConnection() {
            return new TimedConnection(this);
        }
    }

    private final int blockingMs;
    private boolean blocks;

    private TimedConnection(Builder builder) {
        super(builder);
        JedisClientConfig config = builder.getClientConfig();
        blockingMs = config.getBlockingSocketTimeoutMillis();
    }

    /** Around the reading of an answer to a command that blocks. */
    @Override
    public void setTimeoutInfinite() {
        blocks = true;
        super.setTimeoutInfinite();
    }

    @Override
    public void rollbackTimeout() {
        blocks = false;
        super.rollbackTimeout();
    }

    @Override
    protected Object protocolRead(RedisInputStream in, PushConsumerChain pushConsumers) {
        int usualMs = getSoTimeout();
        setSoTimeout(AnswerTime.leftMs(blocks ? blockingMs : usualMs));
        try {
            return super.protocolRead(in, pushConsumers);
        } finally {
            setSoTimeout(usualMs);
        }
    }
}
