package io.github.redislock;

import java.util.ArrayList;
import java.util.List;

/** A real cluster of three primaries, of which the first has a replica. */
final class TestCluster implements AutoCloseable {
    /** The first slot of each primary, and the number of slots. */
    private static final int[] FIRSTS = {0, 6_000, 12_000, 16_384};

    /** The first three are primaries; the fourth is the first one's replica. */
    final List<TestServer> nodes = new ArrayList<>();

    TestCluster() {
        try {
            for (int number = 0; number < 4; number++) {
                nodes.add(
                        TestServer.startWith(
                                "--cluster-enabled",
                                "yes",
                                "--cluster-port",
                                Integer.toString(freePort()),
                                "--cluster-node-timeout",
                                "2000",
                                "--cluster-replica-validity-factor",
                                "0"));
            }
            form();
        } catch (RuntimeException failed) {
            close();
            throw failed;
        }
    }

    private static int freePort() {
        try {
            return TestServer.freePort();
        } catch (java.io.IOException failed) {
            throw new java.io.UncheckedIOException(failed);
        }
    }

    /** Three primaries, as two of them must agree that one is down; the fourth is a replica. */
    private void form() {
        for (int number = 0; number < 3; number++) {
            nodes.get(number)
                    .ask("CLUSTER", "ADDSLOTSRANGE", FIRSTS[number], FIRSTS[number + 1] - 1);
            nodes.get(number).ask("CLUSTER", "SET-CONFIG-EPOCH", number + 1);
        }
        for (TestServer node : nodes.subList(1, 4)) {
            String busPort = config(node, "cluster-port");
            nodes.get(0).ask("CLUSTER", "MEET", "127.0.0.1", node.port(), busPort);
        }
        for (TestServer node : nodes) {
            Eventually.isTrue(
                    "all know one another",
                    () -> node.ask("CLUSTER", "NODES").toString().split("\n").length == 4);
        }
        Eventually.isTrue("it is a replica", this::replicates);
        for (TestServer node : nodes) {
            Eventually.isTrue(
                    "the cluster is up",
                    () -> node.ask("CLUSTER", "INFO").toString().contains("cluster_state:ok"));
        }
        Eventually.isTrue(
                "the replica has its data",
                () -> nodes.get(0).info("replication").contains("state=online"));
    }

    private boolean replicates() {
        try {
            nodes.get(3).ask("CLUSTER", "REPLICATE", id(0));
            return true;
        } catch (redis.clients.jedis.exceptions.JedisDataException notYet) {
            return false;
        }
    }

    private static String config(TestServer node, String name) {
        return node.ask("CONFIG", "GET", name).toString().replaceAll("\\D", ""); // A list or a map.
    }

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
        nodes.forEach(TestServer::close);
    }
}
