package io.github.redislock.spring;

import io.github.redislock.RedisLock;

import org.springframework.integration.support.locks.DistributedLock;

/** The same with the interface of Spring Integration 7. It is not loaded with an older one. */
final class DistributedRegistryLock extends RedisRegistryLock implements DistributedLock {
    private DistributedRegistryLock(RedisLock lock, Depths depths) {
        super(lock, depths);
    }

    /** Returns the class that always loads, so that the verifier of a caller needs no other. */
    static RedisRegistryLock of(RedisLock lock, Depths depths) {
        return new DistributedRegistryLock(lock, depths);
    }
}
