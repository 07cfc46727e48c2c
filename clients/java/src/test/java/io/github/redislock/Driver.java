package io.github.redislock;

import io.lettuce.core.RedisClient;
import io.lettuce.core.api.StatefulRedisConnection;

import redis.clients.jedis.JedisPool;
import redis.clients.jedis.UnifiedJedis;

import java.net.URI;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.Deque;

/** The ways to a client of locks at one server, each with its driver's defaults. */
enum Driver {
    JEDIS {
        @Override
        Opened open(String url, LockOptions options) {
            return new Opened(JedisLocks.connect(url, options));
        }
    },
    JEDIS_UNIFIED {
        @Override
        Opened open(String url, LockOptions options) {
            UnifiedJedis jedis = TestServer.client(URI.create(url), 8, 1);
            return new Opened(JedisLocks.over(jedis, options), jedis);
        }
    },
    JEDIS_POOL {
        @Override
        Opened open(String url, LockOptions options) {
            JedisPool pool = new JedisPool(url);
            return new Opened(JedisLocks.over(pool, options), pool);
        }
    },
    LETTUCE {
        @Override
        Opened open(String url, LockOptions options) {
            return new Opened(LettuceLocks.connect(url, options));
        }
    },
    LETTUCE_CLIENT {
        @Override
        Opened open(String url, LockOptions options) {
            RedisClient client = RedisClient.create(url);
            return new Opened(LettuceLocks.over(client, options), ending(client));
        }
    },
    LETTUCE_CONNECTION {
        @Override
        Opened open(String url, LockOptions options) {
            RedisClient client = RedisClient.create(url);
            StatefulRedisConnection<?, ?> connection = client.connect();
            return new Opened(LettuceLocks.over(connection, options), connection, ending(client));
        }
    };

    /** A client of locks, and what was made for it. */
    static final class Opened implements AutoCloseable {
        final RedisLockClient locks;
        private final Deque<AutoCloseable> others = new ArrayDeque<>();

        Opened(RedisLockClient locks, AutoCloseable... others) {
            this.locks = locks;
            this.others.addAll(java.util.List.of(others));
        }

        @Override
        public void close() {
            locks.close();
            for (AutoCloseable other : others) {
                try {
                    other.close();
                } catch (Exception failed) {
                    throw new IllegalStateException(failed);
                }
            }
        }
    }

    static AutoCloseable ending(RedisClient client) {
        return () -> client.shutdown(Duration.ZERO, Duration.ofSeconds(2));
    }

    abstract Opened open(String url, LockOptions options);
}
