import io.github.redislock.*;

import java.time.Duration;

/** A program of somebody else's, with the built jar and one driver on its class path. */
public final class TakeOneLock {
    public static void main(String[] arguments) throws Exception {
        // As Spring looks at a bean: no method names a driver that is absent.
        RedisLockClient.class.getDeclaredMethods();
        RedisLock.class.getDeclaredMethods();
        try (RedisLockClient locks = RedisLockClient.connect(arguments[0])) {
            RedisLock lock = locks.lock("jobs:42");
            lock.lock();
            if (lock.fence() <= 0 || !lock.check()) {
                throw new IllegalStateException("it is not held");
            }
            lock.unlock();
            try (RedisHold hold = lock.tryAcquire()) {
                hold.renew(Duration.ofSeconds(5));
                System.out.println("fence " + hold.fence());
            }
        }
    }
}
