package io.github.redislock;

import io.lettuce.core.AbstractRedisClient;
import io.lettuce.core.RedisClient;

import org.apache.commons.pool2.impl.GenericObjectPoolConfig;

import redis.clients.jedis.*;
import redis.clients.jedis.providers.PooledConnectionProvider;
import redis.clients.jedis.util.JedisURIHelper;

import java.lang.reflect.Proxy;
import java.net.URI;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.*;
import java.util.function.*;
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
        return new Opened(LettuceLocks.over(client.connect(), options), ending(client));
    }),
    /** Without threads that wait. */
    LETTUCE_FUTURES((url, options) -> {
        RedisClient client = RedisClient.create(url);
        return new Opened(LettuceLockClient.connect(client, options), ending(client));
    });

    private final BiFunction<String, LockOptions, Opened> opening;

    Way(BiFunction<String, LockOptions, Opened> opening) {
        this.opening = opening;
    }

    Opened open(String url, LockOptions options) {
        return opening.apply(url, options);
    }

    /** What there is to hold. */
    enum Kind {
        LOCK,
        READ,
        WRITE,
        PERMIT,
        MULTI
    }

    /** A client of locks, of one kind or of the other, and what was made for it. */
    record Opened(RedisLockClient locks, LettuceLockClient futures, List<AutoCloseable> all)
            implements AutoCloseable {
        Opened(RedisLockClient locks, AutoCloseable... others) {
            this(locks, null, Stream.concat(Stream.of(locks), Stream.of(others)).toList());
        }

        Opened(LettuceLockClient futures, AutoCloseable... others) {
            this(null, futures, Stream.concat(Stream.of(futures), Stream.of(others)).toList());
        }

        /** Null when it could not be had in time. With a lease of -1 it is renewed. */
        RedisHold take(Kind kind, List<String> names, long waitMs, long leaseMs) {
            if (futures == null) {
                Holds lock = (Holds) lock(
                        kind,
                        names,
                        locks::lock,
                        name -> locks.readWriteLock(name).readLock(),
                        locks::semaphore,
                        all -> locks.multiLock(all.toArray(RedisLock[]::new)));
                return Other.quietly(
                        () -> lock.tryAcquire(waitMs, leaseMs, TimeUnit.MILLISECONDS));
            }
            AsyncLock lock = (AsyncLock) lock(
                    kind,
                    names,
                    futures::lock,
                    futures::readLock,
                    futures::semaphore,
                    all -> futures.multiLock(all.toArray(AsyncLock[]::new)));
            Duration wait = Duration.ofMillis(waitMs);
            return Other.result(
                            leaseMs < 0
                                    ? lock.tryLock(wait)
                                    : lock.tryLock(wait, Duration.ofMillis(leaseMs)))
                    .map(Opened::joined)
                    .orElse(null);
        }

        /** Of several those behind a slash are shared. */
        private static <L> Object lock(
                Kind kind,
                List<String> names,
                Function<String, L> exclusive,
                Function<String, L> shared,
                BiFunction<String, Integer, ?> permit,
                Function<Stream<L>, ?> several) {
            String name = names.get(0);
            int slash = names.contains("/") ? names.indexOf("/") : names.size();
            return switch (kind) {
                case READ -> shared.apply(name);
                case PERMIT -> permit.apply(name, Integer.valueOf(names.get(1)));
                case MULTI ->
                    several.apply(Stream.concat(
                            names.stream().limit(slash).map(exclusive),
                            names.stream().skip(slash + 1L).map(shared)));
                default -> exclusive.apply(name);
            };
        }

        /** A hold of futures, by calls that wait. */
        private static RedisHold joined(AsyncHold hold) {
            return (RedisHold) Proxy.newProxyInstance(
                    RedisHold.class.getClassLoader(),
                    new Class<?>[] {RedisHold.class},
                    (self, called, words) -> {
                        boolean releases = called.getName().equals("release");
                        Object got = AsyncHold.class
                                .getMethod(
                                        releases ? "unlock" : called.getName(),
                                        called.getParameterTypes())
                                .invoke(hold, words);
                        Object value = got instanceof Future<?> late ? Other.result(late) : got;
                        if (releases && value.equals(false)) {
                            throw new IllegalMonitorStateException("it was lost");
                        }
                        return value;
                    });
        }

        /** An exclusive one on one key, which is renewed. */
        RedisHold take(String name) {
            return take(Kind.LOCK, List.of(name), 0, -1);
        }

        /** The same after a wait that does not end in vain. */
        RedisHold awaits(String name, long leaseMs) {
            return take(Kind.LOCK, List.of(name), 120_000, leaseMs);
        }

        boolean runOnce(String name, Duration most, Duration least, Consumer<RedisHold> job) {
            if (futures == null) {
                return locks.runOnce(name, most, least, job);
            }
            return Other.result(futures.runOnce(name, most, least, hold -> {
                job.accept(joined(hold));
                return CompletableFuture.completedFuture(null);
            }));
        }

        /** The maker of a client without waiting threads has one of its own. */
        <T> T once(String name, Once<T> how, Callable<T> make) throws Exception {
            if (futures == null) {
                return locks.once(name, how, make);
            }
            try {
                return futures.once(name, how, () -> CompletableFuture.supplyAsync(
                                () -> Other.quietly(make), task -> new Thread(task).start()))
                        .get();
            } catch (ExecutionException failed) {
                throw (Exception) failed.getCause();
            }
        }

        @Override
        public void close() {
            all.forEach(each -> Other.quietly(each::close));
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
