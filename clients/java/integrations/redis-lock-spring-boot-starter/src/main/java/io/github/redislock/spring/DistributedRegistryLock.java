package io.github.redislock.spring;

import io.github.redislock.RedisLock;

import org.springframework.integration.support.locks.DistributedLock;

import java.util.Map;

/** The same with the interface of Spring Integration 7. It is not loaded with an older one. */
final class DistributedRegistryLock extends RedisRegistryLock implements DistributedLock {
    private DistributedRegistryLock(RedisLock lock, Map<Held, Boolean> holds) {
        super(lock, holds);
    }

    /** Returns the class that always loads, so that the verifier of a caller needs no other. */
    static RedisRegistryLock of(RedisLock lock, Map<Held, Boolean> holds) {
        return new DistributedRegistryLock(lock, holds);
    }
}
