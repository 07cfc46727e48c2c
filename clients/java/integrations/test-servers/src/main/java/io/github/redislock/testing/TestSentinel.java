package io.github.redislock.testing;

import java.util.List;

/** A primary, a replica, and one Sentinel that fails over. */
public final class TestSentinel implements AutoCloseable {
    /** The name of the primary at the Sentinel. */
    public static final String MASTER = "locks";

    private final List<TestServer> all = TestServer.group("sentinel");
    private final TestServer primary = all.get(0);
    private final TestServer replica = all.get(1);
    private final TestServer sentinel = all.get(2);

    private TestSentinel() {}

    /**
     * Starts the three.
     *
     * @return when the Sentinel knows the replica
     */
    public static TestSentinel start() {
        return new TestSentinel();
    }

    /**
     * The address of the Sentinel.
     *
     * @return host and port
     */
    public String address() {
        return "127.0.0.1:" + sentinel.port();
    }

    /**
     * The replica.
     *
     * @return the primary after {@link #failOver()}
     */
    public TestServer replica() {
        return replica;
    }

    /** Kills the primary, and waits until the replica has its role. */
    public void failOver() {
        primary.kill();
        Eventually.isTrue(
                "the replica is the primary",
                () -> replica.ask("ROLE").toString().startsWith("[master"));
    }

    @Override
    public void close() {
        primary.close();
    }
}
