package io.github.redislock;

import com.hazelcast.cp.lock.FencedLock;

import java.lang.reflect.*;
import java.util.concurrent.TimeUnit;

/**
 * A RedisLock under the interface of Hazelcast's lock: other names, and a fence that is 0 where
 * there is none.
 */
final class ShimLock {
    private ShimLock() {}

    static FencedLock of(RedisLock lock) {
        return (FencedLock) Proxy.newProxyInstance(
                FencedLock.class.getClassLoader(),
                new Class<?>[] {FencedLock.class},
                (self, called, arguments) -> answer(lock, called, arguments));
    }

    private static Object answer(RedisLock lock, Method called, Object[] arguments)
            throws Throwable {
        return switch (called.getName()) {
            case "lockAndGetFence" -> {
                lock.lock();
                yield lock.fence();
            }
            case "tryLockAndGetFence" ->
                tryLock(lock, arguments) ? lock.fence() : FencedLock.INVALID_FENCE;
            case "tryLock" -> tryLock(lock, arguments);
            case "getFence" -> lock.fence();
            case "isLockedByCurrentThread" -> lock.isHeldByCurrentThread();
            // Hazelcast counts for all threads, this lock for the own: another's is known to be
            // held, not how often.
            case "getLockCount" ->
                lock.isHeldByCurrentThread() || !lock.isLocked() ? lock.getHoldCount() : 1;
            default -> sameName(lock, called, arguments);
        };
    }

    private static boolean tryLock(RedisLock lock, Object[] arguments) {
        try {
            return arguments == null
                    ? lock.tryLock()
                    : lock.tryLock((Long) arguments[0], (TimeUnit) arguments[1]);
        } catch (InterruptedException interrupted) {
            throw new IllegalStateException(interrupted); // Hazelcast's is not interruptible here.
        }
    }

    private static Object sameName(RedisLock lock, Method called, Object[] arguments)
            throws Throwable {
        try {
            return RedisLock.class
                    .getMethod(called.getName(), called.getParameterTypes())
                    .invoke(lock, arguments);
        } catch (NoSuchMethodException absent) {
            throw new UnsupportedOperationException(called.toString());
        } catch (InvocationTargetException failed) {
            throw failed.getCause();
        }
    }
}
