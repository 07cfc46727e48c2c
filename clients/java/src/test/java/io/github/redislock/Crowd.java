package io.github.redislock;

import io.github.redislock.testing.Eventually;
import io.github.redislock.testing.TestServer;

import redis.clients.jedis.Connection;
import redis.clients.jedis.HostAndPort;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;

/** Raw clients that block without end, and take turns with the lock {@code a}. */
final class Crowd implements AutoCloseable {
    private final List<Other> others = new ArrayList<>();
    private final List<Connection> connections = new ArrayList<>();
    private final AtomicInteger holds = new AtomicInteger();
    private final TestServer server;

    Crowd(TestServer server, int clients, long holdMs) {
        this.server = server;
        for (int number = 0; number < clients; number++) {
            Connection connection = new Connection(new HostAndPort("127.0.0.1", server.port()));
            connection.setTimeoutInfinite();
            ask(connection, "CLIENT", "SETNAME", "crowd");
            connections.add(connection);
            Other other = new Other();
            others.add(other);
            String token = "raw-" + number;
            other.starts(() -> {
                while (!Thread.currentThread().isInterrupted()) {
                    ask(connection, "LOCK.ACQUIRE", "a", token, "600000", "BLOCK", "0");
                    holds.incrementAndGet();
                    Thread.sleep(holdMs);
                    ask(connection, "LOCK.RELEASE", "a", token);
                }
            });
        }
    }

    private static void ask(Connection connection, String command, String... words) {
        connection.sendCommand(() -> command.getBytes(), words);
        connection.getOne();
    }

    /** How many have begun. */
    int holds() {
        return holds.get();
    }

    @Override
    public void close() {
        others.forEach(Other::close);
        // One that was between two requests connects again.
        Eventually.isTrue("they have ended", () -> {
            connections.forEach(Connection::close);
            return others.stream().noneMatch(other -> other.thread.isAlive());
        });
        // A request that the server has not read yet could take the lock in the next test.
        Eventually.isTrue(
                "the crowd is gone",
                () -> !server.ask("CLIENT", "LIST").toString().contains("name=crowd"));
    }
}
