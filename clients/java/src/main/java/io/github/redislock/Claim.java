package io.github.redislock;

import java.util.*;

/**
 * The keys that a request asks for, and in which way.
 *
 * @param names in order, none twice
 * @param modes one for each name
 * @param limit how many holders there may be, itself included; 0 where the mode alone decides
 * @param several whether the keys are asked for in one step, by {@code LOCK.MACQUIRE}
 * @param result the key of a value that answers the request in place of the lock, by {@code
 *     LOCK.ONCE}; null where there is none
 * @param earlyMs from so long before its end the value is made again; 0 for never
 */
record Claim(
        List<String> names,
        List<Mode> modes,
        int limit,
        boolean several,
        String result,
        long earlyMs) {
    /** The two ways to hold a lock. A mutex is a lock that is only ever held exclusively. */
    enum Mode {
        EXCLUSIVE,
        SHARED
    }

    /** The lock under which a value is made, in the slot of the value. */
    static Claim once(String result, long earlyMs) {
        List<String> lock = List.of(Once.lock(result));
        return new Claim(lock, List.of(Mode.EXCLUSIVE), 0, false, result, earlyMs);
    }

    static Claim one(String name, Mode mode) {
        return new Claim(List.of(name), List.of(mode), 0, false, null, 0);
    }

    static Claim permit(String name, int permits) {
        if (permits < 1) {
            throw new IllegalArgumentException("a semaphore has at least one permit");
        }
        return new Claim(List.of(name), List.of(Mode.EXCLUSIVE), permits, false, null, 0);
    }

    /** In the order of the names, so that two views of the same locks are equal. */
    static Claim all(List<Claim> parts) {
        if (parts.isEmpty()) {
            throw new IllegalArgumentException("a multi-lock has at least one lock");
        }
        Map<String, Mode> modes = new TreeMap<>();
        for (Claim part : parts) {
            if (part.several || part.limit > 0) {
                throw new IllegalArgumentException("a multi-lock is made of locks of one key");
            }
            if (modes.put(part.name(), part.mode()) != null) {
                throw new IllegalArgumentException(part.name() + " is named twice");
            }
        }
        List<String> names = List.copyOf(modes.keySet());
        return new Claim(names, List.copyOf(modes.values()), 0, true, null, 0);
    }

    /** The first key. Its queue tells of the whole request. */
    String name() {
        return names.get(0);
    }

    /** The way in which a thread counts it: several are held as a whole. */
    Mode mode() {
        return several ? Mode.EXCLUSIVE : modes.get(0);
    }

    /** What is held by it: the lock alone. */
    Claim held() {
        return result == null ? this : one(name(), Mode.EXCLUSIVE);
    }

    /** For messages. */
    String title() {
        return String.join(", ", names);
    }
}
