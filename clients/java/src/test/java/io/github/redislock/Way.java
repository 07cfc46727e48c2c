package io.github.redislock;

import io.lettuce.core.AbstractRedisClient;
import io.lettuce.core.RedisClient;
import io.lettuce.core.api.StatefulRedisConnection;

import org.apache.commons.pool2.impl.GenericObjectPoolConfig;

import redis.clients.jedis.*;
import redis.clients.jedis.providers.PooledConnectionProvider;
import redis.clients.jedis.util.JedisURIHelper;

import java.net.URI;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.*;
import java.util.function.Consumer;
import java.util.function.Function;
import java.util.stream.Stream;

/** The ways to a client of locks at one server, each with its way's defaults. */
enum Way {
    JEDIS((url, options) -> new Opened(JedisLocks.connect(url, options))),
    JEDIS_UNIFIED((url, options) -> {
        UnifiedJedis jedis = unified(URI.create(url));
        return new Opened(JedisLocks.over(jedis, options), jedis);
    }),
    JEDIS_POOL((url, options) -> {
        JedisPool pool = new JedisPool(url);
        return new Opened(JedisLocks.over(pool, options), pool);
    }),
    LETTUCE((url, options) -> new Opened(LettuceLocks.connect(url, options))),
    LETTUCE_CLIENT((url, options) -> {
        RedisClient client = RedisClient.create(url);
        return new Opened(LettuceLocks.over(client, options), ending(client));
    }),
    LETTUCE_CONNECTION((url, options) -> {
        RedisClient client = RedisClient.create(url);
        StatefulRedisConnection<?, ?> connection = client.connect();
        return new Opened(LettuceLocks.over(connection, options), connection, ending(client));
    }),
    /** Without threads that wait. */
    LETTUCE_FUTURES((url, options) -> {
        RedisClient client = RedisClient.create(url);
        return new Opened(LettuceLockClient.connect(client, options), ending(client));
    });

    private interface Opening {
        Opened open(String url, LockOptions options);
    }

    private final Opening opening;

    Way(Opening opening) {
        this.opening = opening;
    }

    Opened open(String url, LockOptions options) {
        return opening.open(url, options);
    }

    /** A client of locks, of one kind or of the other, and what was made for it. */
    static final class Opened implements AutoCloseable {
        final RedisLockClient locks;
        final LettuceLockClient futures;
        private final List<AutoCloseable> all;

        Opened(RedisLockClient locks, AutoCloseable... others) {
            this(locks, null, locks, others);
        }

        Opened(LettuceLockClient futures, AutoCloseable... others) {
            this(null, futures, futures, others);
        }

        private Opened(
                RedisLockClient locks,
                LettuceLockClient futures,
                AutoCloseable first,
                AutoCloseable... others) {
            this.locks = locks;
            this.futures = futures;
            this.all = Stream.concat(Stream.of(first), Stream.of(others)).toList();
        }

        /** Null when it could not be had in time. With a lease of -1 it is renewed. */
        Held take(Kind kind, List<String> names, long waitMs, long leaseMs) {
            if (futures == null) {
                return Held.of(kind.acquire(locks, names, waitMs, leaseMs));
            }
            AsyncLock lock = kind.lock(futures, names);
            Duration wait = Duration.ofMillis(waitMs);
            Duration lease = Duration.ofMillis(leaseMs);
            return Other.result(
                            leaseMs < 0 ? lock.tryLock(wait) : lock.tryLock(wait, lease),
                            waitMs + 20_000)
                    .map(Held::of)
                    .orElse(null);
        }

        /** An exclusive one on one key, which is renewed. */
        Held take(String name) {
            return take(Kind.LOCK, List.of(name), 0, -1);
        }

        boolean runOnce(String name, Duration most, Duration least, Consumer<Held> job) {
            if (futures == null) {
                return locks.runOnce(name, most, least, hold -> job.accept(Held.of(hold)));
            }
            return Other.result(futures.runOnce(name, most, least, hold -> {
                job.accept(Held.of(hold));
                return CompletableFuture.completedFuture(null);
            }));
        }

        /** The maker of a client without waiting threads has one of its own. */
        <T> T once(String name, Once<T> how, Callable<T> make) throws Exception {
            if (futures == null) {
                return locks.once(name, how, make);
            }
            CompletableFuture<T> value = futures.once(name, how, () -> {
                CompletableFuture<T> made = new CompletableFuture<>();
                new Thread(() -> {
                    try {
                        made.complete(make.call());
                    } catch (Exception failed) {
                        made.completeExceptionally(failed);
                    }
                }).start();
                return made;
            });
            try {
                return value.get();
            } catch (ExecutionException failed) {
                throw (Exception) failed.getCause();
            }
        }

        @Override
        public void close() {
            for (AutoCloseable each : all) {
                try {
                    each.close();
                } catch (Exception failed) {
                    throw new IllegalStateException(failed);
                }
            }
        }
    }

    /** What there is to hold. */
    enum Kind {
        LOCK,
        READ,
        WRITE,
        PERMIT,
        MULTI;

        RedisHold acquire(RedisLockClient locks, List<String> names, long waitMs, long leaseMs) {
            String name = names.get(0);
            try {
                if (this == PERMIT) {
                    return locks.semaphore(name, Integer.parseInt(names.get(1)))
                            .tryAcquire(waitMs, leaseMs, TimeUnit.MILLISECONDS);
                }
                ThreadLock lock = switch (this) {
                    case READ -> locks.readWriteLock(name).readLock();
                    case WRITE -> locks.readWriteLock(name).writeLock();
                    case MULTI ->
                        locks.multiLock(parts(
                                        names,
                                        locks::lock,
                                        each -> locks.readWriteLock(each).readLock())
                                .toArray(RedisLock[]::new));
                    default -> locks.lock(name);
                };
                return lock.tryAcquire(waitMs, leaseMs, TimeUnit.MILLISECONDS);
            } catch (InterruptedException cut) {
                throw new IllegalStateException(cut);
            }
        }

        AsyncLock lock(LettuceLockClient locks, List<String> names) {
            String name = names.get(0);
            return switch (this) {
                case READ -> locks.readLock(name);
                case PERMIT ->
                    (FutureLock) locks.semaphore(name, Integer.parseInt(names.get(1)));
                case MULTI ->
                    locks.multiLock(
                            parts(names, locks::lock, locks::readLock).toArray(AsyncLock[]::new));
                default -> locks.lock(name);
            };
        }

        /** Those behind a slash are shared. */
        private static <T> Stream<T> parts(
                List<String> names, Function<String, T> exclusive, Function<String, T> shared) {
            int slash = names.contains("/") ? names.indexOf("/") : names.size();
            return Stream.concat(
                    names.stream().limit(slash).map(exclusive),
                    names.stream().skip(slash + 1L).map(shared));
        }
    }

    static AutoCloseable ending(AbstractRedisClient client) {
        return () -> client.shutdown(Duration.ZERO, Duration.ofSeconds(2));
    }

    /** A client of Jedis that all of its versions can make, for the user of the address. */
    private static UnifiedJedis unified(URI address) {
        GenericObjectPoolConfig<Connection> pool = new GenericObjectPoolConfig<>();
        DefaultJedisClientConfig config = DefaultJedisClientConfig.builder()
                .user(JedisURIHelper.getUser(address))
                .password(JedisURIHelper.getPassword(address))
                .build();
        return new UnifiedJedis(
                new PooledConnectionProvider(JedisURIHelper.getHostAndPort(address), config, pool),
                1,
                Duration.ofSeconds(2));
    }
}
