package io.github.redislock;

import redis.clients.jedis.Connection;
import redis.clients.jedis.HostAndPort;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;

/** Raw clients that block without end, and take turns with the lock {@code a}. */
final class Crowd implements AutoCloseable {
    private static final String NAME = "crowd";

    private final List<Other> others = new ArrayList<>();
    private final List<Connection> connections = new ArrayList<>();
    private final AtomicInteger holds = new AtomicInteger();
    private final TestServer server;

    Crowd(TestServer server, int clients, long holdMs) {
        this.server = server;
        for (int number = 0; number < clients; number++) {
            Connection connection = new Connection(new HostAndPort("127.0.0.1", server.port()));
            connection.setTimeoutInfinite();
            connection.executeCommand(
                    TestServer.command("CLIENT").add("SETNAME").add(NAME));
            connections.add(connection);
            Other other = new Other();
            others.add(other);
            String token = "raw " + number;
            other.starts(() -> takeTurns(connection, token, holdMs));
        }
    }

    /** How many have begun. */
    int holds() {
        return holds.get();
    }

    private void takeTurns(Connection connection, String token, long holdMs)
            throws InterruptedException {
        while (true) {
            connection.executeCommand(TestServer.command("LOCK.ACQUIRE")
                    .key("a")
                    .add(token)
                    .add(600_000)
                    .add("BLOCK")
                    .add(0));
            holds.incrementAndGet();
            Thread.sleep(holdMs);
            connection.executeCommand(
                    TestServer.command("LOCK.RELEASE").key("a").add(token));
        }
    }

    @Override
    public void close() {
        others.forEach(Other::close);
        connections.forEach(Connection::close);
        // A request that the server has not read yet could take the lock in the next test.
        Eventually.isTrue("the crowd is gone", () -> {
            Object clients = server.redis.sendCommand(() -> "CLIENT".getBytes(), "LIST");
            return !new String((byte[]) clients).contains("name=" + NAME);
        });
    }
}
