package io.github.redislock.testing;

import java.util.List;

/** A primary, a replica, and one Sentinel that fails over. */
public final class TestSentinel implements AutoCloseable {
    /** The name of the primary at the Sentinel. */
    public static final String MASTER = "locks";

    private final List<TestServer> all = TestServer.group("sentinel");
    public final TestServer primary = all.get(0);
    public final TestServer replica = all.get(1);
    public final TestServer sentinel = all.get(2);

    @Override
    public void close() {
        primary.close();
    }
}
