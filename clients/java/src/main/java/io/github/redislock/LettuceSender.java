package io.github.redislock;

import io.lettuce.core.RedisConnectionStateListener;
import io.lettuce.core.api.StatefulConnection;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.api.async.BaseRedisAsyncCommands;
import io.lettuce.core.cluster.api.StatefulRedisClusterConnection;
import io.lettuce.core.codec.StringCodec;
import io.lettuce.core.protocol.CommandArgs;
import io.lettuce.core.protocol.ProtocolKeyword;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;

/** A connection of Lettuce to one server, or to all of a cluster, whatever its codec. */
final class LettuceSender {
    /** The name of a command. */
    private final class Name implements ProtocolKeyword {
        private final String name;
        private final AtomicBoolean written = new AtomicBoolean();

        Name(String name) {
            this.name = name;
        }

        /** Lettuce asks for them each time that it writes the command. */
        @Override
        public byte[] getBytes() {
            if (written.getAndSet(true)) {
                writtenAgain.incrementAndGet();
            }
            return name.getBytes(StandardCharsets.US_ASCII);
        }

        @Override
        @SuppressWarnings("deprecation") // Older versions ask for it.
        public String name() {
            return name;
        }

        /** Lettuce would take one of the name EXEC for the end of a transaction. */
        @Override
        public String toString() {
            return name;
        }
    }

    private final StatefulConnection<?, ?> connection;
    private final BaseRedisAsyncCommands<String, String> commands;
    private final AtomicLong writtenAgain = new AtomicLong();

    /** With {@code commands} of the same connection. Their arguments bring a codec of their own. */
    @SuppressWarnings("unchecked")
    private LettuceSender(
            StatefulConnection<?, ?> connection, BaseRedisAsyncCommands<?, ?> commands) {
        this.connection = connection;
        this.commands = (BaseRedisAsyncCommands<String, String>) commands;
    }

    static LettuceSender of(StatefulRedisConnection<?, ?> connection) {
        return new LettuceSender(connection, connection.async());
    }

    static LettuceSender of(StatefulRedisClusterConnection<?, ?> connection) {
        return new LettuceSender(connection, connection.async());
    }

    /** Any command; what it gives is not cancelled by what is made of it. */
    CompletableFuture<Object> dispatch(Request request) {
        CommandArgs<String, String> arguments = new CommandArgs<>(StringCodec.UTF8);
        for (Request.Word word : request.words()) {
            if (word.isKey()) {
                arguments.addKey(new String(word.bytes(), StandardCharsets.UTF_8));
            } else {
                arguments.add(word.bytes());
            }
        }
        LettuceReply reply = new LettuceReply();
        CompletableFuture<List<Object>> sent = commands.dispatch(
                        new Name(request.command), reply, arguments)
                .toCompletableFuture();
        CompletableFuture<Object> plain = sent.thenApply(reply::value);
        plain.whenComplete((value, failed) -> {
            if (plain.isCancelled()) {
                sent.cancel(false); // Lettuce drops what it has not sent yet.
            }
        });
        return plain;
    }

    /** How often Lettuce has sent a command again, as it does by itself on a new connection. */
    long writtenAgain() {
        return writtenAgain.get();
    }

    /** For a connection of our own: no command of it is given up by Lettuce before this time. */
    LettuceSender withTimeout(Duration longest) {
        connection.setTimeout(longest);
        return this;
    }

    void addListener(RedisConnectionStateListener listener) {
        connection.addListener(listener);
    }

    void removeListener(RedisConnectionStateListener listener) {
        connection.removeListener(listener);
    }

    /** Has the server close it. Lettuce connects anew, and asks a Sentinel where to. */
    CompletableFuture<String> leave() {
        return commands.quit().toCompletableFuture();
    }

    boolean isOpen() {
        return connection.isOpen();
    }

    /** For any thread; the other side sees it soon. */
    void close() {
        connection.closeAsync();
    }

    /** Waits for its end, so that nothing is left when a client of Lettuce shuts down. */
    void closeNow() {
        connection.close();
    }
}
