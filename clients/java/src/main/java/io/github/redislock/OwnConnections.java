package io.github.redislock;

import redis.clients.jedis.Connection;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.DefaultJedisSocketFactory;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.JedisClientConfig;
import redis.clients.jedis.JedisSocketFactory;
import redis.clients.jedis.exceptions.JedisConnectionException;
import redis.clients.jedis.util.JedisURIHelper;

import java.net.URI;
import java.net.URISyntaxException;
import java.util.Deque;
import java.util.concurrent.ConcurrentLinkedDeque;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** Connections to one server: as many as are asked for at once, of which a few idle ones stay. */
final class OwnConnections implements JedisConnections {
    private static final int MOST_IDLE = 8;
    private static final long LONGEST_IDLE_NANOS = TimeUnit.SECONDS.toNanos(30);

    /** A host may have an underscore, as those of Docker do, for which URI has no host. */
    private static final Pattern URL = Pattern.compile(
            "(?<before>[^:/]+://([^/@]*@)?)(?<host>[\\w.-]+|\\[[^/@\\]]+\\])(?<after>:.*)");

    private record Idle(Connection connection, long sinceNanos) {
        boolean isStale() {
            return System.nanoTime() - sinceNanos > LONGEST_IDLE_NANOS;
        }
    }

    private final Deque<Idle> idle = new ConcurrentLinkedDeque<>();
    private final JedisClientConfig config;
    private final InterruptibleSockets sockets;
    private final JedisSocketFactory socketFactory;
    private volatile boolean closed;

    OwnConnections(String url, int answerMs) {
        Matcher parts = URL.matcher(url);
        URI uri = parts.matches() ? uri(parts) : null;
        if (uri == null || uri.getHost() == null || uri.getPort() < 0) {
            // Without its text, which has the password.
            throw new IllegalArgumentException("expected redis://[[user]:password@]host:port");
        }
        HostAndPort address = new HostAndPort(parts.group("host"), uri.getPort());
        config = DefaultJedisClientConfig.builder()
                .connectionTimeoutMillis(answerMs)
                .socketTimeoutMillis(answerMs)
                .user(JedisURIHelper.getUser(uri))
                .password(JedisURIHelper.getPassword(uri))
                .database(JedisURIHelper.getDBIndex(uri))
                .protocol(JedisURIHelper.getRedisProtocol(uri))
                .ssl(JedisURIHelper.isRedisSSLScheme(uri))
                .build();
        sockets = new InterruptibleSockets(address, config);
        socketFactory = config.isSsl()
                ? () -> new DefaultJedisSocketFactory(address, brief()).createSocket()
                : sockets;
    }

    /** With a host that it knows. Null where it is none, as the exception would have its text. */
    private static URI uri(Matcher parts) {
        try {
            return new URI(parts.group("before") + "host" + parts.group("after"));
        } catch (URISyntaxException wrong) {
            return null;
        }
    }

    /** The same, with no more time than the caller has. */
    private JedisClientConfig brief() {
        return DefaultJedisClientConfig.builder()
                .connectionTimeoutMillis(AnswerTime.leftMs(config.getConnectionTimeoutMillis()))
                .socketTimeoutMillis(AnswerTime.leftMs(config.getSocketTimeoutMillis()))
                .ssl(true)
                .build();
    }

    @Override
    public Loan take(boolean waits) {
        Idle found = idle.pollFirst();
        while (found != null && found.isStale()) {
            found.connection().disconnect();
            found = idle.pollFirst();
        }
        if (closed) {
            throw new JedisConnectionException("the client was closed");
        }
        Connection connection =
                found == null ? new Connection(socketFactory, config) : found.connection();
        return new Loan() {
            @Override
            public Connection connection() {
                return connection;
            }

            @Override
            public void end(boolean broken) {
                giveBack(connection, broken);
            }
        };
    }

    private void giveBack(Connection connection, boolean broken) {
        if (broken) {
            // The others have most probably been lost with it.
            disconnectIdle();
        }
        if (broken || closed || idle.size() >= MOST_IDLE) {
            disconnect(connection);
        } else {
            idle.addFirst(new Idle(connection, System.nanoTime()));
            if (closed) {
                disconnectIdle();
            }
        }
    }

    private void disconnectIdle() {
        for (Idle one; (one = idle.pollFirst()) != null; ) {
            disconnect(one.connection());
        }
    }

    private static void disconnect(Connection connection) {
        try {
            connection.disconnect();
        } catch (JedisConnectionException ignored) {
            // It was never of use.
        }
    }

    /** Closes those in use, too. */
    @Override
    public void close() {
        closed = true;
        disconnectIdle();
        sockets.close();
    }
}
