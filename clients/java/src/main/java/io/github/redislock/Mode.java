package io.github.redislock;

/** The two ways to hold a lock. A mutex is a lock that is only ever held exclusively. */
enum Mode {
    EXCLUSIVE,
    SHARED
}
