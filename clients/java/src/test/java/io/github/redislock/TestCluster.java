package io.github.redislock;

import java.util.List;

/** A real cluster of three primaries, of which the first has a replica. */
final class TestCluster implements AutoCloseable {
    /** The first slot of each primary, and the number of slots. */
    private static final int[] FIRSTS = {0, 5_461, 10_922, 16_384};

    /** The first three are primaries; the fourth is the first one's replica. */
    final List<TestServer> nodes = TestServer.group("cluster");

    String id(int number) {
        return nodes.get(number).ask("CLUSTER", "MYID").toString();
    }

    TestServer first() {
        return nodes.get(0);
    }

    TestServer replica() {
        return nodes.get(3);
    }

    /** A key that one of the primaries has at first. */
    String key(String prefix, int node) {
        for (int number = 0; ; number++) {
            long slot = (Long) first().ask("CLUSTER", "KEYSLOT", prefix + number);
            if (slot >= FIRSTS[node] && slot < FIRSTS[node + 1]) {
                return prefix + number;
            }
        }
    }

    /** Hands a slot of the first node, with the keys in it, to the second. */
    void moveSlot(String key) {
        TestServer from = nodes.get(0);
        TestServer to = nodes.get(1);
        Object slot = from.ask("CLUSTER", "KEYSLOT", key);
        to.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", id(0));
        from.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", id(1));
        from.ask("MIGRATE", "127.0.0.1", to.port(), key, 0, 2_000);
        for (TestServer node : List.of(to, from, nodes.get(2))) {
            node.ask("CLUSTER", "SETSLOT", slot, "NODE", id(1));
        }
    }

    @Override
    public void close() {
        nodes.get(0).close();
    }
}
