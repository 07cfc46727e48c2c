package io.github.redislock.testing;

import java.util.List;

/** A cluster of three primaries, of which the first has a replica: it is the fourth node. */
public final class TestCluster implements AutoCloseable {
    /** How many slots a primary has. */
    private static final long SLOTS = 5_461;

    /** All of them have seen all slots. */
    public final List<TestServer> nodes = TestServer.group("cluster");

    /** The primary of the first third of the slots. */
    public TestServer first() {
        return nodes.get(0);
    }

    /** The replica of that. */
    public TestServer replica() {
        return nodes.get(3);
    }

    /** A key that one of the primaries has at first. */
    public String key(String prefix, int node) {
        for (int number = 0; ; number++) {
            if ((Long) first().ask("CLUSTER", "KEYSLOT", prefix + number) / SLOTS == node) {
                return prefix + number;
            }
        }
    }

    /** Begins to hand a slot of the first node to the second, which has what is new in it. */
    public void beginToMoveSlot(String key) {
        Object slot = first().ask("CLUSTER", "KEYSLOT", key);
        Object[] ids = nodes.stream().map(node -> node.ask("CLUSTER", "MYID")).toArray();
        nodes.get(1).ask("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[0]);
        first().ask("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[1]);
    }

    /** Hands a slot of the first node, with the key in it, to the second. */
    public void moveSlot(String key) {
        TestServer from = nodes.get(0);
        TestServer to = nodes.get(1);
        Object slot = from.ask("CLUSTER", "KEYSLOT", key);
        Object[] ids = nodes.stream().map(node -> node.ask("CLUSTER", "MYID")).toArray();
        beginToMoveSlot(key);
        from.ask("MIGRATE", "127.0.0.1", to.port(), key, 0, 2_000);
        for (TestServer node : List.of(to, from, nodes.get(2))) {
            node.ask("CLUSTER", "SETSLOT", slot, "NODE", ids[1]);
        }
    }

    @Override
    public void close() {
        first().close();
    }
}
