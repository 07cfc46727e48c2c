/**
 * {@link java.util.concurrent.locks.Lock} and {@link java.util.concurrent.locks.ReadWriteLock} over
 * the redis-lock module of Redis and Valkey, by Jedis or Lettuce.
 *
 * <p>{@link io.github.redislock.RedisLockClient} is where to start.
 */
package io.github.redislock;
