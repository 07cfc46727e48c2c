package io.github.redislock.testing;

import java.io.UncheckedIOException;
import java.util.List;
import java.util.stream.Collectors;

/** A cluster of three primaries. */
public final class TestCluster implements AutoCloseable {
    private final List<TestServer> nodes = TestServer.group("cluster");

    private TestCluster() {}

    /**
     * Starts it.
     *
     * @return when every node has seen all slots
     */
    public static TestCluster start() {
        return new TestCluster();
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
        nodes.get(0).close();
    }
}
