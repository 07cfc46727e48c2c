package io.github.redislock;

import io.lettuce.core.RedisChannelHandler;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisCommandExecutionException;
import io.lettuce.core.RedisConnectionStateListener;
import io.lettuce.core.RedisException;
import io.lettuce.core.cluster.RedisClusterClient;
import io.lettuce.core.pubsub.RedisPubSubAdapter;
import io.lettuce.core.pubsub.StatefulRedisPubSubConnection;

import java.net.SocketAddress;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executor;
import java.util.concurrent.ForkJoinPool;
import java.util.concurrent.Future;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.Semaphore;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.BooleanSupplier;
import java.util.function.Function;
import java.util.stream.Stream;

/**
 * Gives out locks over <a href="https://github.com/redis/lettuce">Lettuce</a>, for programs that
 * have many waiters. All of them share two connections: one that asks, and one that is told. No
 * thread waits. In a cluster a waiter has connections for itself.
 *
 * <p>It needs {@code io.lettuce:lettuce-core} from 6.3 on the class path, which is an optional
 * dependency. The channel that is told is {@code redis-lock:} and a UUID; the user needs the right
 * to subscribe and to publish to it.
 */
public final class LettuceLockClient implements AutoCloseable {
    /** How many waiters at once have a connection for themselves, in a cluster. */
    private static final int MOST_BLOCKED = 32;

    private static final long MOST_BEAT_NANOS = TimeUnit.SECONDS.toNanos(5);

    /** After this a release is sent again. */
    private static final Executor AGAIN =
            CompletableFuture.delayedExecutor(Wire.PACE_MS, TimeUnit.MILLISECONDS);

    private record Key(String name, String token) {}

    private final Map<Key, AsyncRequest<?>> waiting = new ConcurrentHashMap<>();
    private final Set<AsyncHold> holding = ConcurrentHashMap.newKeySet();
    private final String channel = "redis-lock:" + UUID.randomUUID();
    private final Executor executor = ForkJoinPool.commonPool();
    private final ScheduledThreadPoolExecutor timer = Holds.thread("redis-lock-timer");
    private final LockOptions options;
    private final LettuceServers servers;

    /** Where it is told how a wait ended; null in a cluster, where the waiters block. */
    private volatile StatefulRedisPubSubConnection<String, String> listening;

    private final Semaphore blocked = new Semaphore(MOST_BLOCKED);
    private final Fallback fallback;
    private volatile boolean closed;

    private LettuceLockClient(LettuceServers servers, LockOptions options) {
        this.servers = servers;
        this.options = options;
        this.fallback = new Fallback(options.fallback());
        timer.setRejectedExecutionHandler(new ThreadPoolExecutor.DiscardPolicy());
        try {
            if (!servers.isCluster()) {
                listening = listen(new Listener());
                later(beatNanos(), this::beat);
            } else if (options.linger().isPresent()) {
                throw new IllegalArgumentException(LettuceWire.NO_LINGER);
            }
        } catch (RuntimeException failed) {
            disconnect();
            throw failed;
        }
        servers.shared().addListener(new Rebinding());
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
        return new LettuceLockClient(LettuceServers.of(lettuce, options), options);
    }

    /**
     * Works in a cluster. There a waiter has connections for itself, in slices, as a message would
     * have to come by a channel of the key's slot. Beyond 32 waiters at once the others ask every
     * 50 ms, at their places in the queue.
     *
     * @param lettuce stays yours to shut down
     * @param options what may be chosen, but for {@code linger}; {@code onLost} is told of no owner
     * @return a client, to be closed
     */
    public static LettuceLockClient connect(RedisClusterClient lettuce, LockOptions options) {
        return new LettuceLockClient(LettuceServers.of(lettuce, options), options);
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
        return new AsyncLock(
                this, Claim.all(Stream.of(locks).map(lock -> lock.claim).toList()));
    }

    /**
     * Runs a job unless it runs elsewhere, or ran elsewhere within {@code lockAtLeastFor}; see
     * {@link RedisLockClient#runOnce}. It does not wait.
     *
     * @param name the lock's key
     * @param lockAtMostFor the lease. It is not renewed, so it must be longer than the job takes
     * @param lockAtLeastFor how long nobody else runs it, counted from the grant by the server's
     *     clock. Zero for no longer than it runs
     * @param job begins the work and gives a future of its end
     * @return whether it ran here, when the job is over and the lock is given back. It fails as the
     *     job does
     */
    public CompletableFuture<Boolean> runOnce(
            String name,
            Duration lockAtMostFor,
            Duration lockAtLeastFor,
            Function<AsyncHold, ? extends CompletionStage<?>> job) {
        long leastMs = ThreadLock.leastMs(lockAtLeastFor);
        if (leastMs > ThreadLock.leaseMs(lockAtMostFor)) {
            throw new IllegalArgumentException("lockAtMostFor is not less than lockAtLeastFor");
        }
        return lock(name)
                .tryLock(Duration.ZERO, lockAtMostFor)
                .thenCompose(held -> held.isEmpty()
                        ? CompletableFuture.completedFuture(false)
                        : run(held.get(), leastMs, job));
    }

    private CompletableFuture<Boolean> run(
            AsyncHold hold, long leastMs, Function<AsyncHold, ? extends CompletionStage<?>> job) {
        if (hold.fence() == 0 && leastMs > 0) {
            return hold.unlock().thenCompose(was ->
                    CompletableFuture.failedFuture(Fallback.lacks(Fallback.LEAST_TIME)));
        }
        hold.keepAtLeast(leastMs);
        CompletableFuture<?> work;
        try {
            work = job.apply(hold).toCompletableFuture();
        } catch (Throwable failed) {
            work = CompletableFuture.failedFuture(failed);
        }
        return work.handle((done, failed) -> cause(failed))
                .thenCompose(failed ->
                        hold.endJob().handle((done, late) -> ran(failed, cause(late))));
    }

    /** That it ran, unless the job or the giving back failed. */
    private static boolean ran(Throwable failed, Throwable late) {
        if (failed == null && late == null) {
            return true;
        }
        if (failed != null && late != null) {
            failed.addSuppressed(late);
        }
        throw new CompletionException(failed == null ? late : failed);
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
        disconnect();
    }

    private void disconnect() {
        timer.shutdownNow();
        servers.close();
        if (listening != null) {
            listening.close();
        }
    }

    private StatefulRedisPubSubConnection<String, String> listen(Listener listener) {
        StatefulRedisPubSubConnection<String, String> told = servers.subscribing();
        try {
            told.addListener(listener);
            told.sync().subscribe(channel);
            return told;
        } catch (RuntimeException failed) {
            told.closeAsync();
            throw failed;
        }
    }

    /**
     * While somebody waits it is asked whether it is still there: a firewall may forget it, and it
     * says nothing of its own. Two of these fit into the grace, so that no place is lost.
     */
    private long beatNanos() {
        return Math.max(
                TimeUnit.MILLISECONDS.toNanos(options.answerMs()),
                Math.min(MOST_BEAT_NANOS, options.grace().toNanos() / 4));
    }

    private void beat() {
        if (waiting.isEmpty() || !listening.isOpen()) { // Lettuce connects it anew.
            later(beatNanos(), this::beat);
            return;
        }
        listening
                .async()
                .ping()
                .toCompletableFuture()
                .orTimeout(beatNanos(), TimeUnit.NANOSECONDS)
                .whenComplete((pong, failed) -> {
                    if (isAnswer(failed)) {
                        later(beatNanos(), this::beat);
                    } else { // It may connect for long.
                        Holds.daemons("redis-lock-listening")
                                .newThread(this::listenAnew)
                                .start();
                    }
                });
    }

    private void listenAnew() {
        StatefulRedisPubSubConnection<String, String> before = listening;
        try {
            Listener next = new Listener();
            next.before = true;
            listening = listen(next);
            before.closeAsync();
            if (closed) { // And may have seen only that one.
                listening.closeAsync();
            }
        } catch (RuntimeException outOfReach) {
            // The next beat tries it again.
        }
        later(beatNanos(), this::beat);
    }

    /** Whether a wait ends by a message, so that its request is answered at once. */
    boolean isTold() {
        return listening != null;
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

    /** A fence, QUEUED where it is told of the end, or null, also when it waits no more. */
    CompletableFuture<Object> acquire(
            Claim claim, String token, long ttlMs, BooleanSupplier waits) {
        Request request = Commands.acquiring(claim, token, ttlMs, options);
        if (waits.getAsBoolean()) {
            request.keepMs = options.grace().toMillis();
            if (!isTold()) {
                return explained(block(request, waits));
            }
            // It asks again within a slice. A place that was left out of reach ends by itself: its
            // channel is there, and nobody listens for it.
            request.add("NOTIFY").add(2 * options.slice().toMillis()).add(channel);
        }
        return explained(send(request));
    }

    private static <T> CompletableFuture<T> explained(CompletableFuture<T> reply) {
        return reply.exceptionallyCompose(failed -> {
            Throwable cause = cause(failed);
            return CompletableFuture.failedFuture(
                    isError(cause, Commands.TTL_TOO_LONG) ? Commands.tooLong(cause) : cause);
        });
    }

    private CompletableFuture<Object> block(Request request, BooleanSupplier waits) {
        if (!fallback.isChosen() || fallback.isUsed() || !blocked.tryAcquire()) {
            return send(request.atOnce(true));
        }
        request.blockMs = Math.min(LettuceWire.CLUSTER_SLICE_MS, options.slice().toMillis());
        long mostMs = request.blockMs + options.answerMs();
        return CompletableFuture.supplyAsync(servers::take, executor)
                .thenCompose(own -> (waits.getAsBoolean()
                                ? own.dispatch(request).orTimeout(mostMs, TimeUnit.MILLISECONDS)
                                : CompletableFuture.completedFuture(null))
                        .whenComplete((reply, failed) -> servers.end(own, isAnswer(failed))))
                .whenComplete((reply, failed) -> blocked.release());
    }

    private static boolean isAnswer(Throwable failed) {
        return failed == null || cause(failed) instanceof RedisCommandExecutionException;
    }

    /** Whether all of it was held. */
    CompletableFuture<Boolean> renew(Claim claim, String token, long ttlMs) {
        return explained(ofAll(claim, name -> Commands.renewing(name, token, ttlMs)));
    }

    /** How often Lettuce has sent a command again by itself. */
    long resends() {
        return servers.shared().writtenAgain();
    }

    /**
     * Whether all of it was held. It is sent again for as long as {@link LockOptions#reconnect()}
     * where that helps; one that is gone by then, while it {@code lasts}, counts as released by the
     * try before.
     */
    CompletableFuture<Boolean> release(
            Claim claim, String token, long leastMs, BooleanSupplier lasts) {
        return release(claim, token, leastMs, lasts, System.nanoTime(), false)
                .orTimeout(options.patienceNanos(), TimeUnit.NANOSECONDS);
    }

    /** Ends a place in the queue, or a hold that nobody has. */
    CompletableFuture<Boolean> giveUp(Claim claim, String token) {
        return release(claim, token, 0, () -> false);
    }

    private CompletableFuture<Boolean> release(
            Claim claim,
            String token,
            long leastMs,
            BooleanSupplier lasts,
            long startNanos,
            boolean unanswered) {
        return ofAll(claim, name -> Commands.releasing(name, token, leastMs))
                .handle((held, failed) -> {
                    if (failed == null) {
                        return CompletableFuture.completedFuture(
                                held || unanswered && lasts.getAsBoolean());
                    }
                    Throwable cause = cause(failed);
                    if (!passes(cause) || closed || !isWorthAnother(startNanos)) {
                        return CompletableFuture.<Boolean>failedFuture(cause);
                    }
                    // One of several may be refused after others were released.
                    boolean mayBeDone = unanswered
                            || claim.several()
                            || !(cause instanceof RedisCommandExecutionException);
                    return CompletableFuture.supplyAsync(
                                    () -> release(
                                            claim, token, leastMs, lasts, startNanos, mayBeDone),
                                    AGAIN)
                            .thenCompose(next -> next);
                })
                .thenCompose(next -> next);
    }

    private boolean isWorthAnother(long startNanos) {
        return System.nanoTime() - startNanos <= options.reconnect().toNanos();
    }

    /** Whether all of it is held. */
    CompletableFuture<Boolean> check(Claim claim, String token) {
        return ofAll(claim, name -> Commands.checking(name, token));
    }

    CompletableFuture<Object> exec(String name, String token, String command, Object... words) {
        return send(Commands.guarding(name, token, command, words));
    }

    /** One command per key, sent together; whether each reply was a number above 0. */
    private CompletableFuture<Boolean> ofAll(Claim claim, Function<String, Request> words) {
        CompletableFuture<Boolean> all = CompletableFuture.completedFuture(true);
        for (String name : claim.names()) {
            CompletableFuture<Object> reply =
                    send(words.apply(name)).exceptionallyCompose(LettuceLockClient::ofForeignKey);
            all = all.thenCombine(reply, (before, one) -> before && isPositive(one));
        }
        return all;
    }

    /** What was written over the key has ended the hold. */
    private static CompletableFuture<Object> ofForeignKey(Throwable failed) {
        return isError(cause(failed), "WRONGTYPE")
                ? CompletableFuture.completedFuture(null)
                : CompletableFuture.failedFuture(failed);
    }

    private static boolean isPositive(Object reply) {
        return reply instanceof Long number && number > 0;
    }

    private CompletableFuture<Object> send(Request request) {
        if (fallback.isUsed()) {
            return sendInstead(request);
        }
        return dispatch(request)
                .handle((reply, failed) -> {
                    if (failed == null) {
                        fallback.sawModule();
                        return CompletableFuture.completedFuture(reply);
                    }
                    return without(request, cause(failed));
                })
                .thenCompose(next -> next);
    }

    /** What becomes of a request that failed: a server without the module knows none of ours. */
    private CompletableFuture<Object> without(Request request, Throwable failed) {
        if (!isUnknown(request, failed)) {
            return CompletableFuture.failedFuture(failed);
        }
        // It may only lack this one.
        Request probe = Commands.releasing("redis-lock", UUID.randomUUID().toString(), 0);
        return dispatch(probe)
                .handle((none, refused) -> refused != null && isUnknown(probe, cause(refused)))
                .thenCompose(missing -> missing && fallback.begin()
                        ? sendInstead(request)
                        : CompletableFuture.failedFuture(
                                missing
                                        ? Fallback.missing(failed)
                                        : Fallback.unsupported(request, failed)));
    }

    private static boolean isUnknown(Request request, Throwable failed) {
        return failed instanceof RedisCommandExecutionException
                && Fallback.isUnknown(request, failed.getMessage());
    }

    private CompletableFuture<Object> sendInstead(Request request) {
        try {
            return dispatch(Fallback.instead(request))
                    .thenApply(reply -> Fallback.reply(request, reply));
        } catch (ModuleMissingException unavailable) {
            return CompletableFuture.failedFuture(unavailable);
        }
    }

    private CompletableFuture<Object> dispatch(Request request) {
        try {
            // The copy, as a command that is cancelled would not be sent again by Lettuce.
            return servers.send(request)
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
        run(() -> {
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

    /** The shared connection was made anew. */
    private final class Rebinding implements RedisConnectionStateListener {
        @Override
        public void onRedisConnected(RedisChannelHandler<?, ?> connection, SocketAddress address) {
            holding.forEach(AsyncHold::rebind);
            if (options.linger().isPresent()) { // A place ends with its connection, and no message.
                waiting.values().forEach(AsyncRequest::ask);
            }
            // Another server may be there now, and the one that is listened to may live on.
            if (isTold() && listening.isOpen()) {
                listening.async().quit();
            }
        }
    }

    /** On Lettuce's thread, so it only hands on. */
    private final class Listener extends RedisPubSubAdapter<String, String> {
        /** Whether it was subscribed once, so that messages may be lost. */
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
