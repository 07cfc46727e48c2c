package io.github.redislock;

import io.lettuce.core.RedisChannelHandler;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisCommandExecutionException;
import io.lettuce.core.RedisConnectionStateListener;
import io.lettuce.core.RedisException;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.codec.StringCodec;
import io.lettuce.core.output.CommandOutput;
import io.lettuce.core.output.NestedMultiOutput;
import io.lettuce.core.protocol.CommandArgs;
import io.lettuce.core.protocol.ProtocolKeyword;
import io.lettuce.core.pubsub.RedisPubSubAdapter;
import io.lettuce.core.pubsub.StatefulRedisPubSubConnection;

import java.net.SocketAddress;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executor;
import java.util.concurrent.ForkJoinPool;
import java.util.concurrent.Future;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Function;
import java.util.stream.Stream;

/**
 * Gives out locks over <a href="https://github.com/redis/lettuce">Lettuce</a>, for programs that
 * have many waiters. All of them share two connections: one that asks, and one that is told. No
 * thread waits.
 *
 * <p>It needs {@code io.lettuce:lettuce-core} on the class path, which is an optional dependency,
 * and one server (or a primary with replicas) with module 0.2. The channel that is told is {@code
 * redis-lock:} and a UUID; the user needs the right to subscribe and to publish to it.
 */
public final class LettuceLockClient implements AutoCloseable {
    @SuppressWarnings("deprecation") // Every enum has a name().
    private enum Command implements ProtocolKeyword {
        ACQUIRE("LOCK.ACQUIRE"),
        MACQUIRE("LOCK.MACQUIRE"),
        RLOCK("RWLOCK.RLOCK"),
        RENEW("LOCK.RENEW"),
        RELEASE("LOCK.RELEASE"),
        CHECK("LOCK.CHECK"),
        // Lettuce would take one of the name EXEC for the end of a transaction.
        GUARDED("LOCK.EXEC");

        private final byte[] bytes;

        Command(String name) {
            bytes = name.getBytes(StandardCharsets.US_ASCII);
        }

        @Override
        public byte[] getBytes() {
            return bytes;
        }
    }

    /** A number, a word, or null. */
    private static final class Reply extends CommandOutput<String, String, Object> {
        Reply() {
            super(StringCodec.UTF8, null);
        }

        @Override
        public void set(ByteBuffer word) {
            output = word == null ? null : decodeString(word);
        }

        @Override
        public void set(long number) {
            output = number;
        }
    }

    /** Of any command: a number, a string, null, or a list of such. Maps are flat lists. */
    private static final class AnyReply extends NestedMultiOutput<String, String> {
        private boolean isList;

        AnyReply() {
            super(StringCodec.UTF8);
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

    private record Key(String name, String token) {}

    private final Map<Key, AsyncRequest<?>> waiting = new ConcurrentHashMap<>();
    private final Set<AsyncHold> holding = ConcurrentHashMap.newKeySet();
    private final String channel = "redis-lock:" + UUID.randomUUID();
    private final Executor executor = ForkJoinPool.commonPool();
    private final ScheduledThreadPoolExecutor timer =
            new ScheduledThreadPoolExecutor(
                    1, LettuceLockClient::thread, new ThreadPoolExecutor.DiscardPolicy());
    private final LockOptions options;
    private final StatefulRedisConnection<String, String> asking;
    private final StatefulRedisPubSubConnection<String, String> listening;
    private volatile boolean closed;

    private LettuceLockClient(RedisClient lettuce, LockOptions options) {
        this.options = options;
        timer.setRemoveOnCancelPolicy(true);
        timer.setExecuteExistingDelayedTasksAfterShutdownPolicy(false);
        listening = lettuce.connectPubSub(StringCodec.UTF8);
        try {
            listening.addListener(new Listener());
            listening.sync().subscribe(channel);
            asking = lettuce.connect(StringCodec.UTF8);
            asking.addListener(new Rebinding());
        } catch (RuntimeException failed) {
            listening.close();
            timer.shutdownNow();
            throw failed;
        }
    }

    private static Thread thread(Runnable task) {
        Thread thread = new Thread(task, "redis-lock-timer");
        thread.setDaemon(true);
        return thread;
    }

    /**
     * Connects twice, and subscribes.
     *
     * @param lettuce stays yours to shut down. It must reconnect by itself, as it does by default
     * @param options what may be chosen. At the end of each slice a waiter asks again, for the case
     *     that a message was lost; {@code onLost} is told of no owner
     * @return a client, to be closed
     */
    public static LettuceLockClient connect(RedisClient lettuce, LockOptions options) {
        return new LettuceLockClient(lettuce, options);
    }

    /**
     * A lock that one hold has at a time.
     *
     * @param name its key
     * @return a view; the same lock as the write lock of that name
     */
    public AsyncLock lock(String name) {
        return new AsyncLock(this, Claim.one(name, Mode.EXCLUSIVE));
    }

    /**
     * The readers' side of the lock of that name.
     *
     * @param name its key
     * @return a view
     */
    public AsyncLock readLock(String name) {
        return new AsyncLock(this, Claim.one(name, Mode.SHARED));
    }

    /**
     * A lock that a number of holders share, each with a permit of its own.
     *
     * @param name its key
     * @param permits how many may be held at once, from 1 on
     * @return a view
     */
    public AsyncSemaphore semaphore(String name, int permits) {
        return new AsyncSemaphore(new AsyncLock(this, Claim.permit(name, permits)));
    }

    /**
     * Several locks as one, granted in one step. When one of them is lost, so is the whole.
     *
     * @param locks of this client, each of another name: {@link #lock} or {@link #readLock}
     * @return a view
     */
    public AsyncLock multiLock(AsyncLock... locks) {
        for (AsyncLock lock : locks) {
            if (lock.client != this) {
                throw new IllegalArgumentException(lock.claim.title() + " is of another client");
            }
        }
        return new AsyncLock(this, Claim.all(Stream.of(locks).map(lock -> lock.claim).toList()));
    }

    /**
     * Gives up the places of all that wait, and closes both connections. The waiters' futures fail
     * with an {@link IllegalStateException}. What is held is not released: it ends with its lease.
     */
    @Override
    public void close() {
        closed = true;
        List<CompletableFuture<Boolean>> released =
                waiting.values().stream().map(AsyncRequest::close).toList();
        try {
            CompletableFuture.allOf(released.toArray(new CompletableFuture<?>[0]))
                    .orTimeout(options.answerMs(), TimeUnit.MILLISECONDS)
                    .join();
        } catch (CompletionException outOfReach) {
            // Then the grace ends them.
        }
        timer.shutdownNow();
        asking.close();
        listening.close();
    }

    boolean isClosed() {
        return closed;
    }

    LockOptions options() {
        return options;
    }

    long ttlMs() {
        return options.ttl().toMillis();
    }

    /** A fence, QUEUED where it waits, or null. */
    CompletableFuture<Object> acquire(Claim claim, String token, boolean waits) {
        CommandArgs<String, String> arguments = new CommandArgs<>(StringCodec.UTF8);
        if (claim.several()) {
            arguments.add(claim.names().size());
        }
        arguments.addKeys(claim.names()).add(token).add(ttlMs());
        if (claim.several()) {
            arguments.add("MODES");
            claim.modes().forEach(mode -> arguments.add(mode.name()));
        }
        if (claim.limit() > 0) {
            arguments.add("LIMIT").add(claim.limit());
        }
        if (waits) {
            arguments.add("NOTIFY").add(0).add(channel);
            if (!options.grace().isZero()) {
                arguments.add("KEEP").add(options.grace().toMillis());
            }
        }
        options.linger().ifPresent(linger -> arguments.add("LINGER").add(linger.toMillis()));
        boolean reads = claim.modes().get(0) == Mode.SHARED;
        return send(
                claim.several() ? Command.MACQUIRE : reads ? Command.RLOCK : Command.ACQUIRE,
                new Reply(),
                arguments);
    }

    /** Whether all of it was held. */
    CompletableFuture<Boolean> renew(Claim claim, String token) {
        return ofAll(claim, Command.RENEW, name -> arguments(name, token).add(ttlMs()));
    }

    /** Whether all of it was held. */
    CompletableFuture<Boolean> release(Claim claim, String token) {
        return ofAll(claim, Command.RELEASE, name -> arguments(name, token));
    }

    /** Whether all of it is held. */
    CompletableFuture<Boolean> check(Claim claim, String token) {
        return ofAll(claim, Command.CHECK, name -> arguments(name, token));
    }

    CompletableFuture<Object> exec(String name, String token, String command, Object... words) {
        CommandArgs<String, String> arguments = arguments(name, token).add(command);
        for (Object word : words) {
            if (word instanceof byte[] bytes) {
                arguments.add(bytes);
            } else {
                arguments.add(word.toString());
            }
        }
        AnyReply reply = new AnyReply();
        return send(Command.GUARDED, reply, arguments).thenApply(reply::value);
    }

    /** One command per key, sent together; whether each reply was a number above 0. */
    private CompletableFuture<Boolean> ofAll(
            Claim claim, Command command, Function<String, CommandArgs<String, String>> words) {
        CompletableFuture<Boolean> all = CompletableFuture.completedFuture(true);
        for (String name : claim.names()) {
            CompletableFuture<Object> reply = send(command, new Reply(), words.apply(name));
            all = all.thenCombine(reply, (before, one) -> before && isPositive(one));
        }
        return all;
    }

    private static boolean isPositive(Object reply) {
        return reply instanceof Long number && number > 0;
    }

    private static CommandArgs<String, String> arguments(String name, String token) {
        return new CommandArgs<>(StringCodec.UTF8).addKey(name).add(token);
    }

    private <T> CompletableFuture<T> send(
            Command command,
            CommandOutput<String, String, T> output,
            CommandArgs<String, String> arguments) {
        try {
            // The copy, as a command that is cancelled would not be sent again by Lettuce.
            return asking.async()
                    .dispatch(command, output, arguments)
                    .toCompletableFuture()
                    .copy()
                    .orTimeout(options.answerMs(), TimeUnit.MILLISECONDS);
        } catch (RedisException failed) {
            return CompletableFuture.failedFuture(failed);
        }
    }

    void waits(AsyncRequest<?> request) {
        waiting.put(new Key(request.claim.name(), request.token), request);
    }

    void waitsNoMore(AsyncRequest<?> request) {
        waiting.remove(new Key(request.claim.name(), request.token));
    }

    /** Remembers a hold that ends with the connection, to bind it to the next one. */
    void holds(AsyncHold hold) {
        if (options.linger().isPresent()) {
            holding.add(hold);
        }
    }

    void holdsNoMore(AsyncHold hold) {
        holding.remove(hold);
    }

    /** Never, when the client is closed. */
    Future<?> later(long delayNanos, Runnable task) {
        return timer.schedule(task, delayNanos, TimeUnit.NANOSECONDS);
    }

    /** Runs what may be slow, away from Lettuce's threads. */
    void run(Runnable task) {
        executor.execute(task);
    }

    void tellLost(LostLock news, Runnable more) {
        run(
                () -> {
                    more.run();
                    options.onLost().accept(news);
                });
    }

    static Throwable cause(Throwable failed) {
        return failed instanceof CompletionException && failed.getCause() != null
                ? failed.getCause()
                : failed;
    }

    static boolean isError(Throwable failed, String code) {
        return failed instanceof RedisCommandExecutionException
                && failed.getMessage().startsWith(code);
    }

    /** Whether the server was out of reach, or is only starting, or is changing its role. */
    static boolean passes(Throwable failed) {
        if (failed instanceof RedisException && failed.getMessage() != null) {
            return !(failed instanceof RedisCommandExecutionException)
                    || Commands.passes(failed.getMessage());
        }
        return failed instanceof TimeoutException || failed instanceof RedisException;
    }

    static boolean isMissing(Throwable failed) {
        return failed instanceof RedisCommandExecutionException
                && Commands.isMissing(failed.getMessage());
    }

    /** Tells the holds that the connection was made anew. */
    private final class Rebinding implements RedisConnectionStateListener {
        @Override
        public void onRedisConnected(RedisChannelHandler<?, ?> connection, SocketAddress address) {
            holding.forEach(AsyncHold::rebind);
        }
    }

    /** On Lettuce's thread, so it only hands on. */
    private final class Listener extends RedisPubSubAdapter<String, String> {
        private boolean before;

        @Override
        public void message(String from, String message) {
            // event fence length-of-the-key key token
            String[] words = message.split(" ", 4);
            byte[] rest = words[3].getBytes(StandardCharsets.UTF_8);
            int length = Integer.parseInt(words[2]);
            String name = new String(rest, 0, length, StandardCharsets.UTF_8);
            String token =
                    new String(rest, length + 1, rest.length - length - 1, StandardCharsets.UTF_8);
            AsyncRequest<?> request = waiting.get(new Key(name, token));
            if (request != null) {
                request.told(words[0], Long.parseLong(words[1]));
            }
        }

        /** Lettuce subscribes again by itself. What was published meanwhile is lost. */
        @Override
        public void subscribed(String to, long count) {
            if (before) {
                waiting.values().forEach(AsyncRequest::ask);
            }
            before = true;
        }
    }
}
