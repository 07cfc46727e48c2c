package io.github.redislock.spring;

import org.springframework.integration.support.locks.DistributedLock;
import org.springframework.integration.support.locks.LockRegistry;

import java.time.Duration;

/** A bean that names the type argument of Spring Integration 7. */
class WithSpringIntegration7 {
    final LockRegistry<DistributedLock> locks;

    WithSpringIntegration7(LockRegistry<DistributedLock> locks) {
        this.locks = locks;
    }

    void lockForAMinute(String key) {
        locks.obtain(key).lock(Duration.ofMinutes(1));
    }
}
