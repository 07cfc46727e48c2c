/**
 * Locks of the redis-lock module for Spring: {@link io.github.redislock.spring.RedisLockRegistry}
 * for Spring Integration, and the auto-configuration for Spring Boot.
 */
package io.github.redislock.spring;
