package io.github.redislock;

import redis.clients.jedis.*;
import redis.clients.jedis.exceptions.*;
import redis.clients.jedis.util.*;

import java.io.IOException;
import java.net.*;
import java.nio.channels.SocketChannel;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.IntFunction;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Over connections of Jedis 5 to 8 that nobody else has. Each answer is read by the thread that
 * sends.
 */
final class JedisDriver extends JedisReplies {
    /** A host may have an underscore, as those of Docker do, for which URI has no host. */
    private static final Pattern URL = Pattern.compile("(?<before>rediss?://([^/@]*@)?)"
            + "(?<host>[\\w.-]+|\\[[^/@\\]]+\\])(?<after>([:/?].*)?)");

    private final Spares<Connection> connections =
            new Spares<>(Connection::isConnected, IOUtils::closeQuietly);

    /** Makes a connection, with so many milliseconds for it. */
    private final IntFunction<Connection> connecting;

    /** The one connection that holds are bound to. */
    private volatile Connection link;

    private JedisDriver(IntFunction<Connection> connecting, boolean failsOver) {
        super(failsOver, true);
        this.connecting = connecting;
    }

    /** Connections made as the pool makes them. None of its own is taken. */
    static JedisDriver beside(Pool<?> pool) {
        return new JedisDriver(
                mostMs -> {
                    try {
                        Object made = pool.getFactory().makeObject().getObject();
                        return made instanceof Jedis one ? one.getConnection() : (Connection) made;
                    } catch (Exception failed) {
                        throw failed instanceof RuntimeException same
                                ? same
                                : new JedisConnectionException("cannot connect", failed);
                    }
                },
                true);
    }

    static JedisDriver to(String url, int answerMs) {
        Matcher parts = URL.matcher(url);
        URI uri = null;
        try { // With a host that it knows.
            uri = new URI(parts.replaceFirst("${before}host${after}"));
        } catch (URISyntaxException wrong) {
            // It would have the text, and so the password.
        }
        if (uri == null || uri.getHost() == null || !parts.matches()) {
            throw new IllegalArgumentException("expected redis://[[user]:password@]host[:port]");
        }
        int port = uri.getPort() < 0 ? 6379 : uri.getPort();
        JedisClientConfig config = DefaultJedisClientConfig.builder()
                .connectionTimeoutMillis(answerMs)
                .socketTimeoutMillis(answerMs)
                .user(JedisURIHelper.getUser(uri))
                .password(JedisURIHelper.getPassword(uri))
                .database(JedisURIHelper.getDBIndex(uri))
                .protocol(JedisURIHelper.getRedisProtocol(uri))
                .ssl(JedisURIHelper.isRedisSSLScheme(uri))
                .build();
        return to(new HostAndPort(parts.group("host"), port), config);
    }

    /** Connections to one server. Without TLS their reads end when their thread is interrupted. */
    static JedisDriver to(HostAndPort server, JedisClientConfig config) {
        return new JedisDriver(
                mostMs -> new Connection(
                        config.isSsl()
                                ? new DefaultJedisSocketFactory(server, config)
                                : () -> socket(server, config, mostMs),
                        config),
                false);
    }

    /**
     * Its reads end when their thread is interrupted: a plain {@link Socket} reads on until its
     * time-out, the socket of a channel is closed. The server sees that at once.
     */
    private static Socket socket(HostAndPort address, JedisClientConfig config, int mostMs) {
        int chosenMs = config.getSocketTimeoutMillis(); // Zero is for ever.
        int ms = chosenMs > 0 ? Math.min(mostMs, chosenMs) : mostMs;
        Socket socket = null;
        try {
            socket = SocketChannel.open().socket();
            socket.setTcpNoDelay(true);
            socket.setKeepAlive(true);
            socket.connect(new InetSocketAddress(address.getHost(), address.getPort()), ms);
            socket.setSoTimeout(ms);
            return socket;
        } catch (IOException | RuntimeException failed) {
            IOUtils.closeQuietly(socket);
            throw new JedisConnectionException("cannot connect to " + address, failed);
        }
    }

    static int leftMs(long endNanos) {
        // Rounded up, as asking again a moment before the end would be in vain; 0 is for ever.
        long leftMs = TimeUnit.NANOSECONDS.toMillis(endNanos - System.nanoTime()) + 1;
        return (int) Math.max(1, Math.min(Integer.MAX_VALUE, leftMs));
    }

    @Override
    public CompletableFuture<List<Object>> send(List<Request> requests, long endNanos) {
        return done(() -> requests.get(0).isBound()
                ? sendByLink(requests, endNanos)
                : sendNow(requests, endNanos));
    }

    private synchronized List<Object> sendByLink(List<Request> requests, long endNanos) {
        if (link == null) {
            link = take(endNanos);
            news.run();
        }
        try {
            return exchange(link, requests, endNanos);
        } catch (Throwable failed) {
            if (!isUsableAfter(failed)) {
                pulse = new Lease.Pulse();
                end(link, false);
                link = null;
            }
            throw failed;
        }
    }

    List<Object> sendNow(List<Request> requests, long endNanos) {
        Connection connection = take(endNanos);
        try {
            List<Object> replies = exchange(connection, requests, endNanos);
            end(connection, true);
            return replies;
        } catch (Throwable failed) {
            end(connection, isUsableAfter(failed));
            throw failed;
        }
    }

    private static List<Object> exchange(
            Connection connection, List<Request> requests, long endNanos) {
        requests.forEach(request -> connection.sendCommand(name(request), words(request)));
        return all(requests, request -> {
            connection.setSoTimeout(leftMs(endNanos));
            return plain(request, connection.getOne());
        });
    }

    @Override
    public CompletableFuture<Line> open(long endNanos) {
        return done(() -> {
            Connection connection = take(endNanos);
            return new Line(
                    (request, answerEnd) -> done(
                            () -> exchange(connection, List.of(request), answerEnd).get(0)),
                    usable -> end(connection, usable));
        });
    }

    private Connection take(long endNanos) {
        Connection found = connections.find();
        return found == null ? connecting.apply(leftMs(endNanos)) : found;
    }

    private void end(Connection connection, boolean usable) {
        connections.giveBack(connection, usable);
        if (!usable) {
            connections.endIdle(); // They have most probably been lost with it.
        }
    }

    @Override
    public void close() {
        connections.close();
        IOUtils.closeQuietly(link);
    }
}
