package io.github.redislock;

import io.lettuce.core.*;
import io.lettuce.core.api.StatefulConnection;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.api.async.BaseRedisAsyncCommands;
import io.lettuce.core.cluster.RedisClusterClient;
import io.lettuce.core.cluster.api.StatefulRedisClusterConnection;
import io.lettuce.core.codec.*;
import io.lettuce.core.output.NestedMultiOutput;
import io.lettuce.core.protocol.CommandArgs;
import io.lettuce.core.protocol.ProtocolKeyword;
import io.lettuce.core.pubsub.RedisPubSubAdapter;
import io.lettuce.core.pubsub.StatefulRedisPubSubConnection;

import java.net.SocketAddress;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.*;
import java.util.function.Consumer;
import java.util.function.Supplier;

/**
 * Over Lettuce 6.3 to 7. All commands share one connection. A waiter hears messages on another one,
 * has a connection for itself, or asks again and again where none can be made.
 */
final class LettuceDriver implements Driver {
    static final long CLUSTER_SLICE_MS = 2_000;

    private static final int MOST_IDLE = 8;

    /** A connection to one server, or to all of a cluster, whatever its codec. */
    private record Wire(
            StatefulConnection<?, ?> connection, BaseRedisAsyncCommands<String, String> commands) {}

    private final Wire shared;
    private final Supplier<Wire> connecting;
    private final RedisClient subscribing;
    private final boolean cluster;
    private final boolean failsOver;
    private final Runnable closing;

    /** How many may have a connection for themselves at once. */
    private final Semaphore lines;

    private final Deque<Wire> idle = new ConcurrentLinkedDeque<>();
    private final Set<Wire> taken = ConcurrentHashMap.newKeySet();
    private final AtomicBoolean leaving = new AtomicBoolean();
    private final AtomicLong writtenAgain = new AtomicLong();
    private final AtomicInteger epoch = new AtomicInteger();
    private volatile Runnable news = () -> {};
    private final RedisConnectionStateListener state = new RedisConnectionStateListener() {
        @Override
        public void onRedisConnected(RedisChannelHandler<?, ?> connection, SocketAddress address) {
            news.run();
        }

        @Override
        public void onRedisDisconnected(RedisChannelHandler<?, ?> connection) {
            epoch.incrementAndGet();
        }
    };
    private volatile boolean closed;

    private LettuceDriver(
            Wire shared,
            Supplier<Wire> connecting,
            RedisClient subscribing,
            boolean cluster,
            boolean failsOver,
            int lines,
            Runnable closing) {
        this.shared = shared;
        this.connecting = connecting;
        this.subscribing = subscribing;
        this.cluster = cluster;
        this.failsOver = failsOver;
        this.lines = new Semaphore(lines);
        this.closing = closing;
        shared.connection.addListener(state);
    }

    static LettuceDriver of(
            RedisClient client, LockOptions options, boolean failsOver, Runnable closing) {
        return of(
                () -> wire(client.connect(StringCodec.UTF8)),
                client,
                options,
                failsOver,
                Integer.MAX_VALUE,
                closing);
    }

    static LettuceDriver of(RedisClusterClient client, LockOptions options, int lines) {
        return of(
                () -> wire(client.connect(StringCodec.UTF8)), null, options, true, lines, () -> {});
    }

    private static LettuceDriver of(
            Supplier<Wire> connected,
            RedisClient subscribing,
            LockOptions options,
            boolean failsOver,
            int lines,
            Runnable closing) {
        Duration longest = options.slice().plusMillis(2L * options.answerMs());
        Supplier<Wire> connecting = () -> {
            Wire wire = connected.get();
            wire.connection.setTimeout(longest);
            return wire;
        };
        Wire shared = connecting.get();
        return new LettuceDriver(
                shared, connecting, subscribing, subscribing == null, failsOver, lines, () -> {
                    shared.connection.close();
                    closing.run();
                });
    }

    static LettuceDriver of(StatefulRedisConnection<?, ?> connection) {
        return new LettuceDriver(wire(connection), null, null, false, true, 0, () -> {});
    }

    static LettuceDriver of(StatefulRedisClusterConnection<?, ?> connection) {
        return new LettuceDriver(
                wire(connection, connection.async()), null, null, true, true, 0, () -> {});
    }

    private static Wire wire(StatefulRedisConnection<?, ?> connection) {
        return wire(connection, connection.async());
    }

    private static Wire wire(StatefulRedisClusterConnection<?, ?> connection) {
        return wire(connection, connection.async());
    }

    /** With commands of the same connection. Their arguments bring a codec of their own. */
    @SuppressWarnings("unchecked")
    private static Wire wire(
            StatefulConnection<?, ?> connection, BaseRedisAsyncCommands<?, ?> commands) {
        return new Wire(connection, (BaseRedisAsyncCommands<String, String>) commands);
    }

    @Override
    public CompletableFuture<List<Object>> send(List<Request> requests, long endNanos) {
        List<Object> replies = new ArrayList<>();
        CompletableFuture<List<Object>> all = CompletableFuture.completedFuture(replies);
        for (Request request : requests) {
            CompletableFuture<Object> sent = dispatch(shared, request, endNanos);
            sent.whenComplete((reply, failed) -> leaveIfDemoted(failed));
            all = all.thenCombine(sent, (before, reply) -> {
                before.add(reply);
                return before;
            });
        }
        return all;
    }

    /** One of our own; what the application gave may be in the middle of something. */
    private void leaveIfDemoted(Throwable failed) {
        if (connecting != null
                && !cluster // Which finds the next primary.
                && Replies.isDemoted(refusal(Engine.cause(failed)))
                && leaving.compareAndSet(false, true)) {
            // Lettuce connects anew, and asks a Sentinel where to.
            shared.commands.quit().whenComplete((bye, cut) -> leaving.set(false));
        }
    }

    private CompletableFuture<Object> dispatch(Wire wire, Request request, long endNanos) {
        CommandArgs<String, String> arguments = new CommandArgs<>(StringCodec.UTF8);
        for (Request.Word word : request.words()) {
            if (word.isKey()) {
                arguments.addKey(new String(word.bytes(), StandardCharsets.UTF_8));
            } else {
                arguments.add(word.bytes());
            }
        }
        Reply reply = new Reply(request.isRaw);
        CompletableFuture<List<Object>> sent;
        try {
            sent = wire.commands
                    .dispatch(new Name(request.command), reply, arguments)
                    .toCompletableFuture();
        } catch (RedisException failed) {
            return CompletableFuture.failedFuture(failed);
        }
        return sent.copy()
                .orTimeout(Math.max(0, endNanos - System.nanoTime()), TimeUnit.NANOSECONDS)
                .handle((values, failed) -> {
                    Throwable cause = Engine.cause(failed);
                    if (cause instanceof TimeoutException) {
                        sent.cancel(false); // Or Lettuce would send it when nobody asks any more.
                        throw new RedisCommandTimeoutException("no answer in time");
                    }
                    if (cause instanceof CancellationException) {
                        throw new RedisException("the connection was closed", cause);
                    }
                    if (failed != null) {
                        throw cause instanceof RedisException same
                                ? same
                                : new RedisException(cause);
                    }
                    return reply.value(values);
                });
    }

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

    /**
     * Of any command: a number, a string, null, or a list of such. Maps are flat lists. A raw one
     * has bytes for the strings, but not for a status.
     */
    private static final class Reply extends NestedMultiOutput<String, String> {
        private boolean isList;

        @SuppressWarnings("unchecked") // The list of values takes any.
        Reply(boolean raw) {
            super(raw
                    ? (RedisCodec<String, String>) (RedisCodec<?, ?>) ByteArrayCodec.INSTANCE
                    : StringCodec.UTF8);
        }

        @Override
        public void set(boolean yes) {
            set(yes ? 1 : 0);
        }

        @Override
        public void multi(int count) {
            isList = true;
            super.multi(count);
        }

        Object value(List<Object> values) {
            return isList || values == null || values.isEmpty() ? values : values.get(0);
        }
    }

    @Override
    public CompletableFuture<Line> open(long endNanos) {
        if (connecting == null || !lines.tryAcquire()) {
            return null;
        }
        return connected(endNanos)
                .<Line>thenApply(Own::new)
                .whenComplete((line, failed) -> {
                    if (failed != null) {
                        lines.release();
                    }
                });
    }

    private CompletableFuture<Wire> connected(long endNanos) {
        for (Wire one; (one = idle.pollFirst()) != null; ) {
            if (one.connection.isOpen()) {
                return CompletableFuture.completedFuture(one);
            }
            one.connection.closeAsync();
        }
        // On a thread of its own: at a server that is silent Lettuce connects for up to a minute.
        CompletableFuture<Wire> made = CompletableFuture.supplyAsync(
                connecting,
                task -> Engine.daemons("redis-lock-connecting").newThread(task).start());
        CompletableFuture<Wire> inTime = made.copy()
                .orTimeout(Math.max(0, endNanos - System.nanoTime()), TimeUnit.NANOSECONDS);
        return inTime.exceptionallyCompose(failed -> {
            Throwable cause = Engine.cause(failed);
            if (!(cause instanceof TimeoutException)) {
                return CompletableFuture.failedFuture(cause);
            }
            made.thenAccept(this::giveBack); // One that comes late is for the next who asks.
            return CompletableFuture.failedFuture(
                    new RedisCommandTimeoutException("no connection in time"));
        });
    }

    private final class Own implements Line {
        private final Wire wire;

        Own(Wire wire) {
            this.wire = wire;
            taken.add(wire);
        }

        @Override
        public CompletableFuture<Object> send(Request request, long endNanos) {
            return closed // And may not have seen it.
                    ? CompletableFuture.failedFuture(failure("the client was closed"))
                    : dispatch(wire, request, endNanos);
        }

        @Override
        public void close(boolean usable) {
            if (!taken.remove(wire)) {
                return;
            }
            lines.release();
            if (usable) {
                giveBack(wire);
            } else {
                wire.connection.closeAsync();
            }
        }
    }

    private void giveBack(Wire wire) {
        if (closed || idle.size() >= MOST_IDLE) {
            wire.connection.closeAsync();
            return;
        }
        idle.addFirst(wire);
        if (closed && idle.remove(wire)) {
            wire.connection.closeAsync();
        }
    }

    @Override
    public Subscription listen(String channel, Consumer<String> heard, Runnable anew) {
        StatefulRedisPubSubConnection<String, String> told =
                subscribing.connectPubSub(StringCodec.UTF8);
        try {
            told.addListener(new RedisPubSubAdapter<>() {
                /** Whether it was subscribed once, so that messages may be lost. */
                private boolean before;

                @Override
                public void message(String from, String message) {
                    heard.accept(message);
                }

                /** Lettuce subscribes again by itself. What was published meanwhile is lost. */
                @Override
                public void subscribed(String to, long count) {
                    if (before) {
                        anew.run();
                    }
                    before = true;
                }
            });
            told.sync().subscribe(channel);
        } catch (RuntimeException failed) {
            told.closeAsync();
            throw failed;
        }
        return new Subscription() {
            @Override
            public CompletableFuture<?> ping() {
                return told.async().ping().toCompletableFuture();
            }

            @Override
            public boolean isOpen() {
                return told.isOpen();
            }

            @Override
            public void leave() {
                told.async().quit();
            }

            @Override
            public void close() {
                told.close();
            }
        };
    }

    @Override
    public boolean blocks() {
        return false;
    }

    /**
     * A connection to several nodes does not say that one of them is gone: it is asked again after
     * a while, at the same place.
     */
    @Override
    public long mostBlockMs() {
        return cluster ? CLUSTER_SLICE_MS : Long.MAX_VALUE;
    }

    @Override
    public String refusal(Throwable failed) {
        return failed instanceof RedisCommandExecutionException ? failed.getMessage() : null;
    }

    @Override
    public boolean isOutOfReach(Throwable failed) {
        return failed instanceof RedisException && refusal(failed) == null;
    }

    @Override
    public RuntimeException failure(String text) {
        return new RedisException(text);
    }

    @Override
    public boolean failsOver() {
        return failsOver;
    }

    @Override
    public long resends() {
        return writtenAgain.get();
    }

    @Override
    public String whyNoLinger() {
        return cluster
                ? "linger binds a hold to one connection, and in a cluster there is one per node"
                : null;
    }

    @Override
    public int epoch() {
        return epoch.get();
    }

    @Override
    public void onReconnect(Runnable then) {
        news = then;
    }

    /** What the application gave stays open. */
    @Override
    public void close() {
        closed = true;
        shared.connection.removeListener(state);
        List.copyOf(taken).forEach(wire -> wire.connection.closeAsync());
        for (Wire one; (one = idle.pollFirst()) != null; ) {
            one.connection.close();
        }
        closing.run();
    }
}
