package io.github.redislock;

/**
 * Tells of a hold that ended without its owner: its lease ran out, or somebody deleted or shortened
 * it.
 *
 * @param name the lock's key; those of a {@link RedisMultiLock} with commas between
 * @param owner the thread that held it and may still believe so; interrupting it is one way to tell
 *     it. For a permit it is the thread that took it, which may have handed it on. Null for a hold
 *     of {@link LettuceLockClient}, which belongs to no thread
 * @param fence the fence of the hold that is over
 * @param reason one line for a log
 */
public record LostLock(String name, Thread owner, long fence, String reason) {}
