package io.github.redislock;

import io.github.redislock.testing.Eventually;

/** Lets everybody through, but for a while nobody. */
final class Gate {
    private volatile boolean shut;
    private volatile boolean waited;

    void shut() {
        shut = true;
    }

    void open() {
        shut = false;
    }

    void pass() {
        waited |= shut;
        Eventually.isTrue("the gate is open", () -> !shut);
    }

    void awaitSomebody() {
        Eventually.isTrue("somebody waits at the gate", () -> waited);
    }
}
