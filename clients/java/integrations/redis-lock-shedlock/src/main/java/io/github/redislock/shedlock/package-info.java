/** A lock provider of ShedLock by the redis-lock module. */
package io.github.redislock.shedlock;
