package io.github.redislock.testing;

import java.util.List;

/** A primary, a replica, and one Sentinel that fails over. */
public final class TestSentinel implements AutoCloseable {
    /** The name of the primary at the Sentinel. */
    public static final String MASTER = "locks";

    private final TestServer primary;
    private final TestServer replica;
    private final TestServer sentinel;

    private TestSentinel(TestServer primary, TestServer replica, TestServer sentinel) {
        this.primary = primary;
        this.replica = replica;
        this.sentinel = sentinel;
    }

    /**
     * Starts the three.
     *
     * @return when the Sentinel knows the replica
     */
    public static TestSentinel start() {
        TestServer primary = TestServer.start("--repl-diskless-sync-delay", "0");
        String port = Integer.toString(primary.port());
        TestServer replica = TestServer.start("--replicaof", "127.0.0.1", port);
        Eventually.isTrue(
                "the replica is in step",
                () -> replica.ask("INFO", "replication").toString().contains("link_status:up"));
        TestServer sentinel =
                TestServer.sentinel(
                        List.of(
                                "sentinel monitor " + MASTER + " 127.0.0.1 " + port + " 1",
                                "sentinel down-after-milliseconds " + MASTER + " 500",
                                "sentinel failover-timeout " + MASTER + " 5000"));
        Eventually.isTrue(
                "the Sentinel knows the replica",
                () -> {
                    List<?> known = (List<?>) sentinel.ask("SENTINEL", "REPLICAS", MASTER);
                    return known.size() == 1 && known.toString().contains("slave-priority");
                });
        return new TestSentinel(primary, replica, sentinel);
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
        sentinel.close();
        replica.close();
        primary.close();
    }
}
