package io.github.redislock.examples;

import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.data.redis.core.StringRedisTemplate;
import org.springframework.integration.support.locks.LockRegistry;
import org.springframework.stereotype.Service;

import java.util.concurrent.locks.Lock;

/** A service that reads, decides and writes, guarded by a lock per item over all its instances. */
@SpringBootApplication
public class GuardedStock {
    /**
     * Starts an instance.
     *
     * @param arguments as of every Spring Boot application
     */
    public static void main(String[] arguments) {
        SpringApplication.run(GuardedStock.class, arguments);
    }

    /** Knows of no lock but Spring Integration's. */
    @Service
    @SuppressWarnings("rawtypes") // With Spring Integration 7 alone it is a LockRegistry<?>.
    static class Stock {
        private final LockRegistry locks;
        private final StringRedisTemplate redis;

        Stock(LockRegistry locks, StringRedisTemplate redis) {
            this.locks = locks;
            this.redis = redis;
        }

        /** Takes one of an item, unless none is left. */
        boolean take(String item) {
            Lock lock = locks.obtain(item);
            lock.lock();
            try {
                int left = Integer.parseInt(redis.opsForValue().get("stock:" + item));
                if (left == 0) {
                    return false;
                }
                redis.opsForValue().set("stock:" + item, Integer.toString(left - 1));
                return true;
            } finally {
                lock.unlock();
            }
        }
    }
}
