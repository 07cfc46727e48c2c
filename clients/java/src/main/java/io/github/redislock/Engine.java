package io.github.redislock;

import java.util.*;
import java.util.concurrent.*;
import java.util.function.*;

/**
 * What every client has: the commands, sent again where that helps; a clock that sees the ends of
 * leases and never waits; and threads for what may wait. All of it is asynchronous. Who needs an
 * answer joins it, and where the library blocks it does so in the thread that asks.
 */
final class Engine implements AutoCloseable {
    /** The pace of asking again where the server cannot do the waiting. */
    static final long PACE_NANOS = TimeUnit.MILLISECONDS.toNanos(50);

    /** How many renewals may wait at once for servers that are silent. */
    static final int MOST_WORKERS = 64;

    /** How many owners may be slow at once to hear of their losses. */
    private static final int MOST_LOSSES = 16;

    static final System.Logger LOG = System.getLogger("io.github.redislock");

    final Driver driver;
    final LockOptions options;
    final Fallback fallback;
    final Keeper keeper;
    final Telemetry telemetry = Telemetry.find();

    /** Each by its token, until it waits no more, so that {@link #close()} gives up its place. */
    final Map<String, Acquire> waiting = new ConcurrentHashMap<>();

    /** Tells how waits ended; null where a waiter has a connection for itself, or asks again. */
    final Listener listener;

    private final ScheduledThreadPoolExecutor clock =
            new ScheduledThreadPoolExecutor(1, daemons("redis-lock-clock"));
    private final ThreadPoolExecutor workers =
            pool("redis-lock-worker", 0, MOST_WORKERS, new SynchronousQueue<>());
    private final ThreadPoolExecutor losses =
            pool("redis-lock-lost", MOST_LOSSES, MOST_LOSSES, new LinkedBlockingQueue<>());

    /** Runs what users have, away from all that others wait for. */
    final Executor callbacks;

    volatile boolean closed;

    /** With {@code told} one connection hears how the waits of all end. */
    Engine(Driver driver, LockOptions options, boolean told) {
        this.driver = driver;
        this.options = options;
        this.fallback = new Fallback(options.fallback());
        Executor own = Executors.newCachedThreadPool(daemons("redis-lock-callback"));
        Executor given = options.executor().orElse(own);
        this.callbacks = task -> {
            try {
                given.execute(task);
            } catch (RejectedExecutionException refused) {
                own.execute(task); // It must not keep a hold from its owner.
            }
        };
        clock.setRemoveOnCancelPolicy(true);
        clock.setExecuteExistingDelayedTasksAfterShutdownPolicy(false);
        clock.setRejectedExecutionHandler(new ThreadPoolExecutor.DiscardPolicy());
        losses.allowCoreThreadTimeOut(true);
        // A moment later there is a thread again.
        workers.setRejectedExecutionHandler((task, busy) -> soon(task));
        keeper = new Keeper(this);
        try {
            if (options.linger().isPresent() && !driver.keepsOne) {
                throw new IllegalArgumentException("linger binds a hold to one connection, which a"
                        + " cluster and a UnifiedJedis lack: use RedisLockClient.connect, a"
                        + " JedisPool or Lettuce");
            }
            listener = told ? new Listener(this) : null;
            driver.news = this::reconnected;
            if (options.linger().isPresent()) {
                keeper.beat(PACE_NANOS);
            }
        } catch (RuntimeException failed) {
            close();
            throw failed;
        }
    }

    private void reconnected() {
        if (options.linger().isPresent()) {
            work(keeper::rebindAll);
        }
        if (listener != null) {
            if (options.linger().isPresent()) { // A place ends with its connection, and no message.
                askAgain();
            }
            listener.leave();
        }
    }

    /** Has all that wait ask again, as a message or a place may have been lost. */
    void askAgain() {
        waiting.values().forEach(acquire -> acquire.plan(0));
    }

    private static ThreadPoolExecutor pool(
            String name, int core, int most, BlockingQueue<Runnable> queue) {
        return new ThreadPoolExecutor(core, most, 30, TimeUnit.SECONDS, queue, daemons(name));
    }

    static ThreadFactory daemons(String name) {
        return task -> {
            Thread thread = new Thread(task, name);
            thread.setDaemon(true);
            return thread;
        };
    }

    long ttlMs() {
        return options.ttl().toMillis();
    }

    long lingerMs() {
        return options.linger().map(linger -> linger.toMillis()).orElse(-1L);
    }

    /** On the clock's thread, so it must not wait. Never, when the client is closed. */
    Future<?> at(long delayNanos, Runnable task) {
        return clock.schedule(task, delayNanos, TimeUnit.NANOSECONDS);
    }

    /** The same for what may wait for an answer. */
    Future<?> later(long delayNanos, Runnable task) {
        return at(delayNanos, () -> work(task));
    }

    /**
     * Also when the client is closed, so that nobody waits for ever. Not on the common pool, where
     * work of the program may block.
     */
    private void soon(Runnable task) {
        CompletableFuture.delayedExecutor(PACE_NANOS, TimeUnit.NANOSECONDS, Runnable::run)
                .execute(() -> work(task));
    }

    void work(Runnable task) {
        if (driver.blocks) {
            workers.execute(task);
        } else {
            task.run();
        }
    }

    void tellLost(Hold hold, String reason) {
        LostLock news = new LostLock(hold.claim.title(), hold.owner, hold.fence, reason);
        telemetry.lost();
        hold.whenLost.accept(reason);
        losses.execute(() -> {
            try {
                options.onLost().accept(news);
            } catch (RuntimeException failed) {
                LOG.log(System.Logger.Level.ERROR, "onLost failed for " + news.name(), failed);
            }
        });
    }

    long answerEnd() {
        return System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(options.answerMs());
    }

    /** Sends it once. A server without the module is said to be one, or is used without it. */
    CompletableFuture<Object> send(Request request) {
        return send(request, answerEnd());
    }

    CompletableFuture<Object> send(Request request, long endNanos) {
        if (!Fallback.isOurs(request)) {
            return plain(request, endNanos);
        }
        if (fallback.isUsed()) {
            return sendInstead(request, endNanos);
        }
        return plain(request, endNanos)
                .thenApply(fallback::sawModule)
                .exceptionallyCompose(failed -> {
                    if (!Replies.isUnknown(request, refusal(failed))) {
                        return failed(failed);
                    }
                    if (!request.isRaw && fallback.begin()) { // What has no fallback chooses none.
                        return sendInstead(request, endNanos);
                    }
                    return failed(Fallback.missing(request, cause(failed)));
                });
    }

    private CompletableFuture<Object> plain(Request request, long endNanos) {
        return sendAll(List.of(request), endNanos).thenApply(replies -> replies.get(0));
    }

    /** In one pipeline. The server does all of it, whatever the first failure is. */
    CompletableFuture<List<Object>> sendAll(List<Request> requests, long endNanos) {
        if (!requests.get(0).isBound()) {
            return driver.send(requests, endNanos);
        }
        Lease.Pulse pulse = driver.pulse;
        long sentNanos = System.nanoTime();
        return driver.send(requests, endNanos).whenComplete((replies, failed) -> {
            if (driver.pulse == pulse && (failed == null || refusal(failed) != null)) {
                pulse.livedAt(sentNanos);
            }
        });
    }

    private CompletableFuture<Object> sendInstead(Request request, long endNanos) {
        return done(request)
                .thenApply(Fallback::instead)
                .thenCompose(instead -> plain(instead, endNanos));
    }

    /** One command per key, sent together; whether each reply was a number above 0. */
    CompletableFuture<Boolean> ofAll(Claim claim, Function<String, Request> command) {
        List<Request> requests = claim.names().stream().map(command).toList();
        CompletableFuture<Boolean> all = requests.size() == 1
                ? send(requests.get(0)).thenApply(Replies::isOne)
                : sendAll(requests, answerEnd())
                        .thenApply(replies -> replies.stream().allMatch(Replies::isOne));
        // What was written over the key has ended the hold.
        return all.exceptionallyCompose(
                failed -> isError(failed, "WRONGTYPE") ? done(false) : failed(failed));
    }

    CompletableFuture<Boolean> renew(Hold hold, long ttlMs) {
        return ofAll(hold.claim, name -> Request.ofHold("LOCK.RENEW", name, hold.token, ttlMs))
                .exceptionallyCompose(failed -> bounded(Replies.LEASE, failed));
    }

    /** The server bounds all times, and only what was asked tells which one was too long. */
    private <T> CompletableFuture<T> bounded(String time, Throwable failed) {
        boolean tooLong = isError(failed, Replies.TTL_TOO_LONG);
        return failed(tooLong ? Replies.tooLong(time, cause(failed)) : failed);
    }

    /**
     * Has the server end a hold {@code leastMs} after its grant, or now if that is past. True also
     * where a lost answer leaves open whether the first try did it, while the lease {@code lasts}.
     */
    CompletableFuture<Boolean> release(
            Claim claim, String token, long leastMs, BooleanSupplier lasts) {
        boolean[] unanswered = {false};
        Function<String, Request> releasing = name -> {
            Request release = Request.releasing(name, token, leastMs);
            release.whenResent = () -> unanswered[0] = true;
            return release;
        };
        return again(
                        () -> ofAll(claim, releasing)
                                .whenComplete((held, failed) -> unanswered[0] |= failed != null
                                        // One of several may be refused after others were released.
                                        && (claim.several() || driver.isOutOfReach(cause(failed)))),
                        lasts)
                .thenApply(held -> held || unanswered[0] && lasts.getAsBoolean())
                .exceptionallyCompose(failed -> bounded("atLeast", failed));
    }

    /** Ends a place in the queue, or a hold that nobody has. What fails goes on. */
    CompletableFuture<Boolean> giveUp(Claim claim, String token, long leastMs) {
        return release(claim, token, leastMs, within())
                .whenComplete((found, failed) -> goOn(claim, token, leastMs, 1_000, failed));
    }

    /** Releases what nobody else will, after a failure that passes: for two minutes, ever slower. */
    void goOn(Claim claim, String token, long leastMs, long pauseMs, Throwable failed) {
        if (failed != null && kind(failed) != Replies.Kind.FINAL && pauseMs < 100_000) {
            later(
                    TimeUnit.MILLISECONDS.toNanos(pauseMs),
                    () -> ofAll(claim, name -> Request.releasing(name, token, leastMs))
                            .whenComplete((found, again) ->
                                    goOn(claim, token, leastMs, 2 * pauseMs, again)));
        }
    }

    /** True for as long as a server that is out of reach is asked again. */
    BooleanSupplier within() {
        long startNanos = System.nanoTime();
        return () -> System.nanoTime() - startNanos <= options.reconnect().toNanos();
    }

    /** Sends it until there is an answer, for as long as one makes sense. */
    <T> CompletableFuture<T> again(Supplier<CompletableFuture<T>> once) {
        return again(once, within());
    }

    /**
     * The same. What is only refused for a while is sent again while that {@code goesOn}. It may be
     * sent twice, as all with a token may.
     */
    <T> CompletableFuture<T> again(Supplier<CompletableFuture<T>> once, BooleanSupplier goesOn) {
        return again(once, goesOn, within());
    }

    private <T> CompletableFuture<T> again(
            Supplier<CompletableFuture<T>> once, BooleanSupplier goesOn, BooleanSupplier within) {
        return once.get().exceptionallyCompose(failed -> {
            Throwable cause = cause(failed);
            boolean more =
                    driver.isOutOfReach(cause) ? within.getAsBoolean() : goesOn.getAsBoolean();
            if (closed || !more || kind(cause) == Replies.Kind.FINAL) {
                return failed(cause);
            }
            return CompletableFuture.runAsync(() -> {}, this::soon)
                    .thenCompose(any -> again(once, goesOn, within));
        });
    }

    /** A server that is out of reach is one for a while. */
    Replies.Kind kind(Throwable failed) {
        return driver.isOutOfReach(cause(failed))
                ? Replies.Kind.ELSEWHERE
                : Replies.kind(refusal(failed));
    }

    boolean isError(Throwable failed, String start) {
        return Replies.isError(refusal(failed), start);
    }

    /** The text of the server's error; null for any other failure. */
    String refusal(Throwable failed) {
        return driver.refusal(cause(failed));
    }

    /** Completes another future in the same way. */
    static <T> BiConsumer<T, Throwable> settle(CompletableFuture<T> other) {
        return (value, failed) -> {
            if (failed == null) {
                other.complete(value);
            } else {
                other.completeExceptionally(cause(failed));
            }
        };
    }

    static <T> CompletableFuture<T> done(T value) {
        return CompletableFuture.completedFuture(value);
    }

    static <T> CompletableFuture<T> failed(Throwable failed) {
        return CompletableFuture.failedFuture(cause(failed));
    }

    static Throwable cause(Throwable failed) {
        return failed instanceof CompletionException && failed.getCause() != null
                ? failed.getCause()
                : failed;
    }

    /** One of the things that LOCK.INFO tells, by a flat list or by a map of RESP3; or null. */
    CompletableFuture<Object> info(String name, String field) {
        return again(() -> send(new Request("LOCK.INFO").key(name))).thenApply(reply -> {
            if (reply instanceof List<?> flat && flat.contains(field)) {
                return flat.get(flat.indexOf(field) + 1);
            }
            return reply instanceof Map<?, ?> map ? map.get(field) : null;
        });
    }

    /** Has the calling thread begin it and wait for its end. An interrupt waits for that. */
    static <T> T join(Supplier<CompletableFuture<T>> action) {
        // A set flag would close the socket, so it is taken down and kept.
        boolean interrupted = Thread.interrupted();
        try {
            return action.get().join();
        } catch (CompletionException failed) {
            throw thrown(cause(failed));
        } finally {
            if (interrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }

    /** Throws it as it is, also where it is checked. */
    @SuppressWarnings("unchecked")
    static <E extends Throwable> RuntimeException thrown(Throwable failed) throws E {
        throw (E) failed;
    }

    static IllegalStateException closed() {
        return new IllegalStateException("the client was closed");
    }

    /**
     * Stops the keeper, and gives up the places of those that wait. What is held ends with its
     * lease.
     */
    @Override
    public void close() {
        closed = true;
        clock.shutdown();
        CompletableFuture<?>[] released = List.copyOf(waiting.values()).stream()
                .map(Acquire::close)
                .toArray(CompletableFuture<?>[]::new);
        CompletableFuture.allOf(released)
                .exceptionally(outOfReach -> null)
                .join();
        if (listener != null) {
            listener.close();
        }
        driver.close();
    }
}
