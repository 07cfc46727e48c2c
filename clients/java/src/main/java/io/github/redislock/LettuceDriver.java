package io.github.redislock;

import io.lettuce.core.*;
import io.lettuce.core.api.StatefulConnection;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.cluster.RedisClusterClient;
import io.lettuce.core.codec.*;
import io.lettuce.core.output.NestedMultiOutput;
import io.lettuce.core.protocol.*;
import io.lettuce.core.pubsub.RedisPubSubAdapter;
import io.lettuce.core.pubsub.StatefulRedisPubSubConnection;

import java.net.SocketAddress;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.*;
import java.util.function.Consumer;

/**
 * Over Lettuce 6.3 to 7. All commands share one connection. A waiter hears messages on another one,
 * has a connection for itself, or asks again and again where none can be made.
 */
final class LettuceDriver extends Driver {
    private final StatefulConnection<String, String> shared;

    /** Null where all commands go by one connection, which stays the application's. */
    private final AbstractRedisClient client;

    private final Duration longestAnswer;

    /** How many may have a connection for themselves at once. */
    private final Semaphore lines;

    private final Runnable closing;
    private final Spares<StatefulConnection<String, String>> spares =
            new Spares<>(StatefulConnection::isOpen, StatefulConnection::closeAsync);
    private final AtomicBoolean leaving = new AtomicBoolean();
    private final RedisConnectionStateListener state = new RedisConnectionStateListener() {
        @Override
        public void onRedisConnected(RedisChannelHandler<?, ?> connection, SocketAddress address) {
            news.run();
        }

        @Override
        public void onRedisDisconnected(RedisChannelHandler<?, ?> connection) {
            pulse = new Lease.Pulse();
        }
    };

    /**
     * Over a client, or over a connection of the application, where all commands go by that.
     *
     * @param lines how many waiters may have a connection for themselves
     * @param closing after the last connection is closed
     */
    @SuppressWarnings("unchecked") // Our commands, and what takes their replies, bring a codec.
    LettuceDriver(
            AbstractRedisClient client,
            StatefulConnection<?, ?> given,
            LockOptions options,
            boolean failsOver,
            int lines,
            Runnable closing) {
        super(
                false,
                failsOver,
                client instanceof RedisClient || given instanceof StatefulRedisConnection);
        this.client = client;
        this.longestAnswer = options.slice().plusMillis(2L * options.answerMs());
        this.shared = given == null ? connect() : (StatefulConnection<String, String>) given;
        this.lines = new Semaphore(lines);
        this.closing = closing;
        shared.addListener(state);
    }

    LettuceDriver(AbstractRedisClient client, LockOptions options, int lines) {
        this(client, null, options, true, lines, () -> {});
    }

    LettuceDriver(StatefulConnection<?, ?> given, LockOptions options) {
        this(null, given, options, true, 0, () -> {});
    }

    private StatefulConnection<String, String> connect() {
        StatefulConnection<String, String> made = client instanceof RedisClient one
                ? one.connect(StringCodec.UTF8)
                : ((RedisClusterClient) client).connect(StringCodec.UTF8);
        made.setTimeout(longestAnswer);
        return made;
    }

    @Override
    public CompletableFuture<List<Object>> send(List<Request> requests, long endNanos) {
        List<CompletableFuture<Object>> sent = requests.stream()
                .map(request -> dispatch(shared, request, endNanos)
                        .whenComplete((reply, failed) -> leaveIfDemoted(failed)))
                .toList();
        return CompletableFuture.allOf(sent.toArray(CompletableFuture<?>[]::new))
                .handle((all, failed) -> sent.stream().map(CompletableFuture::join).toList());
    }

    /** One of our own; what the application gave may be in the middle of something. */
    private void leaveIfDemoted(Throwable failed) {
        if (client != null
                && keepsOne // A cluster finds the next primary.
                && Replies.isDemoted(refusal(Engine.cause(failed)))
                && leaving.compareAndSet(false, true)) {
            // Lettuce connects anew, and asks a Sentinel where to.
            dispatch(shared, new Request("QUIT"), System.nanoTime() + longestAnswer.toNanos())
                    .whenComplete((bye, cut) -> leaving.set(false));
        }
    }

    private CompletableFuture<Object> dispatch(
            StatefulConnection<String, String> connection, Request request, long endNanos) {
        CommandArgs<String, String> arguments = new CommandArgs<>(StringCodec.UTF8);
        List<byte[]> words = request.words();
        for (int at = 0; at < words.size(); at++) {
            if (at == request.keyAt) {
                arguments.addKey(request.key);
            } else {
                arguments.add(words.get(at));
            }
        }
        Reply reply = new Reply(request.isRaw);
        AsyncCommand<String, String, List<Object>> sent =
                new AsyncCommand<>(new Command<>(keyword(request), reply, arguments));
        try {
            connection.dispatch(sent);
        } catch (RuntimeException failed) { // Not Lettuce's own, if the client was shut down.
            return Engine.failed(failed);
        }
        // Lettuce would send it when nobody asks any more.
        return within(sent, endNanos, () -> sent.cancel(false)).thenApply(reply::value);
    }

    /** Fails as all of Lettuce does, and runs {@code late} first when the time is over. */
    private static <T> CompletableFuture<T> within(
            CompletableFuture<T> future, long endNanos, Runnable late) {
        return future.copy()
                .orTimeout(Math.max(0, endNanos - System.nanoTime()), TimeUnit.NANOSECONDS)
                .exceptionally(failed -> {
                    Throwable cause = Engine.cause(failed);
                    if (cause instanceof TimeoutException) {
                        late.run();
                        throw new RedisCommandTimeoutException("no answer in time");
                    }
                    // A client that was shut down stays so; what else there is passes.
                    throw cause instanceof RedisException
                                    || cause.getClass() == IllegalStateException.class
                            ? Engine.thrown(cause)
                            : new RedisException("the connection was closed", cause);
                });
    }

    /** The name of a command. */
    private static ProtocolKeyword keyword(Request request) {
        return new ProtocolKeyword() {
            private boolean written;

            /** Lettuce asks for them each time that it writes the command. */
            @Override
            public byte[] getBytes() {
                if (written) {
                    request.whenResent.run();
                }
                written = true;
                return Request.bytes(request.command);
            }

            @Override
            @SuppressWarnings("deprecation") // Older versions ask for it.
            public String name() {
                return request.command;
            }

            /** Lettuce would take one of the name EXEC for the end of a transaction. */
            @Override
            public String toString() {
                return request.command;
            }
        };
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
        if (!lines.tryAcquire()) {
            return null;
        }
        StatefulConnection<String, String> found = spares.find();
        // On a thread of its own: at a server that is silent Lettuce connects for up to a minute.
        Executor own = task -> Engine.daemons("redis-lock-connecting").newThread(task).start();
        CompletableFuture<Line> made = (found == null
                        ? CompletableFuture.supplyAsync(this::connect, own)
                        : Engine.done(found))
                .thenApply(connection -> new Line(
                        (request, answerEnd) -> dispatch(connection, request, answerEnd),
                        usable -> {
                            spares.giveBack(connection, usable);
                            lines.release();
                        }));
        made.whenComplete((line, failed) -> lines.release(failed == null ? 0 : 1));
        // For the next who asks.
        return within(made, endNanos, () -> made.thenAccept(line -> line.closing().accept(true)));
    }

    @Override
    public Subscription listen(String channel, Consumer<String> heard, Runnable anew) {
        StatefulRedisPubSubConnection<String, String> told =
                ((RedisClient) client).connectPubSub(StringCodec.UTF8);
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
        return new Subscription(
                () -> told.async().ping().toCompletableFuture(),
                told::isOpen,
                () -> told.async().quit(),
                told::close);
    }

    /**
     * A connection to several nodes does not say that one of them is gone: it is asked again after
     * a while, at the same place.
     */
    @Override
    public long mostBlockMs() {
        return keepsOne ? Long.MAX_VALUE : 2_000;
    }

    @Override
    public String refusal(Throwable failed) {
        return failed instanceof RedisCommandExecutionException ? failed.getMessage() : null;
    }

    @Override
    public boolean isOutOfReach(Throwable failed) {
        return failed instanceof RedisException && refusal(failed) == null;
    }

    /** What the application gave stays open. */
    @Override
    public void close() {
        shared.removeListener(state);
        spares.close();
        if (client != null) {
            shared.close();
        }
        closing.run();
    }
}
