package io.github.redislock;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.StandardSocketOptions;
import java.nio.channels.SocketChannel;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.JedisClientConfig;
import redis.clients.jedis.JedisSocketFactory;
import redis.clients.jedis.exceptions.JedisConnectionException;

/**
 * Sockets whose reads end when their thread is interrupted: a plain {@link Socket} reads on until its time-out, the socket
 * of a channel is closed. The server sees that at once and takes the waiter out of the queue.
 */
record InterruptibleSockets(HostAndPort address, JedisClientConfig config) implements JedisSocketFactory {
    @Override
    public Socket createSocket() {
        SocketChannel channel = null;
        try {
            channel = SocketChannel.open();
            channel.setOption(StandardSocketOptions.TCP_NODELAY, true);
            channel.setOption(StandardSocketOptions.SO_KEEPALIVE, true);
            Socket socket = channel.socket();
            socket.connect(
                    new InetSocketAddress(address.getHost(), address.getPort()), config.getConnectionTimeoutMillis());
            socket.setSoTimeout(config.getSocketTimeoutMillis());
            return socket;
        } catch (IOException | RuntimeException failed) {
            close(channel);
            throw new JedisConnectionException("cannot connect to " + address, failed);
        }
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
