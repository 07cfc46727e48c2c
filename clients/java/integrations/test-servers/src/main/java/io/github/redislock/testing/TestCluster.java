package io.github.redislock.testing;

import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Collectors;

/** A cluster of three primaries. */
public final class TestCluster implements AutoCloseable {
    private static final int NODES = 3;
    private static final int SLOTS = 16_384;

    private final List<TestServer> nodes = new ArrayList<>();

    private TestCluster() {}

    /**
     * Starts it.
     *
     * @return when every node has seen all slots
     */
    public static TestCluster start() {
        TestCluster cluster = new TestCluster();
        for (int node = 0; node < NODES; node++) {
            cluster.nodes.add(TestServer.start("--cluster-enabled", "yes"));
        }
        for (int node = 0; node < NODES; node++) {
            TestServer server = cluster.nodes.get(node);
            String first = Integer.toString(node * SLOTS / NODES);
            String last = Integer.toString((node + 1) * SLOTS / NODES - 1);
            server.ask("CLUSTER", "ADDSLOTSRANGE", first, last);
            String port = Integer.toString(cluster.nodes.get(0).port());
            server.ask("CLUSTER", "MEET", "127.0.0.1", port);
        }
        for (TestServer server : cluster.nodes) {
            Eventually.isTrue(
                    "every node knows all slots",
                    () -> {
                        String info = server.ask("CLUSTER", "INFO").toString();
                        return info.contains("cluster_state:ok")
                                && info.contains("cluster_known_nodes:" + NODES);
                    });
        }
        return cluster;
    }

    /**
     * The addresses of the nodes.
     *
     * @return hosts and ports, with commas between
     */
    public String addresses() {
        return nodes.stream()
                .map(node -> "127.0.0.1:" + node.port())
                .collect(Collectors.joining(","));
    }

    /**
     * Whether somebody holds a lock.
     *
     * @param key of the lock
     * @return as the node of its slot sees it
     */
    public boolean isLocked(String key) {
        for (TestServer node : nodes) {
            try {
                return node.isLocked(key);
            } catch (UncheckedIOException moved) {
                // On another node.
            }
        }
        throw new IllegalStateException("no node has the slot of " + key);
    }

    @Override
    public void close() {
        nodes.forEach(TestServer::close);
    }
}
