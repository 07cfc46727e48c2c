package io.github.redislock;

import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.JedisClientConfig;
import redis.clients.jedis.JedisSocketFactory;
import redis.clients.jedis.exceptions.JedisConnectionException;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.StandardSocketOptions;
import java.nio.channels.SocketChannel;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/**
 * Sockets whose reads end when their thread is interrupted: a plain {@link Socket} reads on until
 * its time-out, the socket of a channel is closed. The server sees that at once and takes the
 * waiter out of the queue.
 */
final class InterruptibleSockets implements JedisSocketFactory, AutoCloseable {
    private final HostAndPort address;
    private final JedisClientConfig config;
    private final Set<SocketChannel> open = ConcurrentHashMap.newKeySet();

    InterruptibleSockets(HostAndPort address, JedisClientConfig config) {
        this.address = address;
        this.config = config;
    }

    @Override
    public Socket createSocket() {
        SocketChannel channel = null;
        try {
            channel = SocketChannel.open();
            channel.setOption(StandardSocketOptions.TCP_NODELAY, true);
            channel.setOption(StandardSocketOptions.SO_KEEPALIVE, true);
            Socket socket = channel.socket();
            socket.connect(
                    new InetSocketAddress(address.getHost(), address.getPort()),
                    AnswerTime.leftMs(config.getConnectionTimeoutMillis()));
            socket.setSoTimeout(AnswerTime.leftMs(config.getSocketTimeoutMillis()));
            open.removeIf(other -> !other.isOpen());
            open.add(channel);
            return socket;
        } catch (IOException | RuntimeException failed) {
            close(channel);
            throw new JedisConnectionException("cannot connect to " + address, failed);
        }
    }

    /**
     * Closes those in use, too, which a pool leaves to their users: who waits does not wait on for
     * a closed client.
     */
    @Override
    public void close() {
        open.forEach(InterruptibleSockets::close);
    }

    private static void close(SocketChannel channel) {
        try {
            if (channel != null) {
                channel.close();
            }
        } catch (IOException ignored) {
            // It was never of use.
        }
    }
}
