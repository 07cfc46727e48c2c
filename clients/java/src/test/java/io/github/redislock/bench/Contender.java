package io.github.redislock.bench;

import io.github.redislock.RedisLockClient;

import org.redisson.Redisson;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

import java.util.List;
import java.util.concurrent.locks.Lock;

/**
 * One library's lock, with the defaults of the library, both of which are a lease of 30 s with a
 * watchdog.
 */
record Contender(Lock lock, Runnable closing) implements AutoCloseable {
    static final List<String> NAMES = List.of("redis-lock", "redisson");

    static Contender named(String name, String url, String key) {
        return switch (name) {
            case "redis-lock" -> {
                RedisLockClient client = RedisLockClient.connect(url);
                yield new Contender(client.lock(key), client::close);
            }
            case "redisson" -> {
                Config config = new Config();
                config.useSingleServer().setAddress(url);
                RedissonClient client = Redisson.create(config);
                yield new Contender(client.getLock(key), client::shutdown);
            }
            default ->
                throw new IllegalArgumentException(
                        "no library of that name: " + name + "; there are " + NAMES);
        };
    }

    @Override
    public void close() {
        closing.run();
    }
}
