package io.github.redislock;

/**
 * Several locks as one: the server grants all of them in one step, or none. A waiter holds nothing
 * and has a place in the queue of each, so crossing requests cannot block one another for ever.
 *
 * <p>A thread holds it as it holds a {@link RedisLock}: reentrantly, renewed by the watchdog, with
 * one fence for all. When one of the locks is lost, so is the whole, and the rest is released.
 *
 * <p>Take all the locks of a piece of work by one multi-lock. A thread that holds one of them by
 * another lock gets an {@link IllegalStateException}, as it would wait for itself.
 */
public interface RedisMultiLock extends ThreadLock {
}
