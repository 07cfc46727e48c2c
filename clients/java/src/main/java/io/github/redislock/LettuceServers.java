package io.github.redislock;

import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisCommandExecutionException;
import io.lettuce.core.RedisException;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.cluster.RedisClusterClient;
import io.lettuce.core.cluster.api.StatefulRedisClusterConnection;
import io.lettuce.core.codec.StringCodec;
import io.lettuce.core.pubsub.StatefulRedisPubSubConnection;

import java.time.Duration;
import java.util.Deque;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedDeque;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Supplier;

/** Connections of Lettuce: one that all commands share, and those of waiters that block. */
final class LettuceServers implements AutoCloseable {
    private static final int MOST_IDLE = 8;

    private final LettuceSender shared;
    private final Supplier<LettuceSender> connecting;
    private final RedisClient subscribing;
    private final Runnable closing;
    private final boolean cluster;
    private final int answerMs;
    private final Deque<LettuceSender> idle = new ConcurrentLinkedDeque<>();
    private final Set<LettuceSender> taken = ConcurrentHashMap.newKeySet();

    /** What somebody began to connect who did not wait for it. */
    private final Deque<CompletableFuture<LettuceSender>> late = new ConcurrentLinkedDeque<>();

    private final AtomicBoolean leaving = new AtomicBoolean();
    private volatile boolean closed;

    private LettuceServers(
            LettuceSender shared,
            Supplier<LettuceSender> connecting,
            RedisClient subscribing,
            boolean cluster,
            int answerMs,
            Runnable closing) {
        this.shared = shared;
        this.connecting = connecting;
        this.subscribing = subscribing;
        this.cluster = cluster;
        this.answerMs = answerMs;
        this.closing = closing;
    }

    static LettuceServers of(RedisClient client, LockOptions options) {
        return of(() -> LettuceSender.of(client.connect(StringCodec.UTF8)), client, options);
    }

    static LettuceServers of(RedisClusterClient client, LockOptions options) {
        return of(() -> LettuceSender.of(client.connect(StringCodec.UTF8)), null, options);
    }

    private static LettuceServers of(
            Supplier<LettuceSender> connected, RedisClient subscribing, LockOptions options) {
        Duration longest = options.slice().plusMillis(2L * options.answerMs());
        Supplier<LettuceSender> connecting = () -> connected.get().withTimeout(longest);
        LettuceSender shared = connecting.get();
        return new LettuceServers(
                shared,
                connecting,
                subscribing,
                subscribing == null,
                options.answerMs(),
                shared::closeNow);
    }

    static LettuceServers of(StatefulRedisConnection<?, ?> connection) {
        return new LettuceServers(LettuceSender.of(connection), null, null, false, 0, () -> {});
    }

    static LettuceServers of(StatefulRedisClusterConnection<?, ?> connection) {
        return new LettuceServers(LettuceSender.of(connection), null, null, true, 0, () -> {});
    }

    LettuceSender shared() {
        return shared;
    }

    /**
     * By the connection that all share. One of our own leaves a server that was demoted; what the
     * application gave may be in the middle of something.
     */
    CompletableFuture<Object> send(Request request) {
        CompletableFuture<Object> sent = shared.dispatch(request);
        sent.whenComplete((reply, failed) -> {
            if (canBlock() && isDemoted(failed) && leaving.compareAndSet(false, true)) {
                shared.leave().whenComplete((bye, cut) -> leaving.set(false));
            }
        });
        return sent;
    }

    /** Whether a connection is of no more use. Those to a cluster find the next primary. */
    boolean isDemoted(Throwable failed) {
        return !cluster
                && LettuceLockClient.cause(failed) instanceof RedisCommandExecutionException refusal
                && Commands.isDemoted(refusal.getMessage());
    }

    /** Whether a waiter can have a connection for itself. */
    boolean canBlock() {
        return connecting != null;
    }

    boolean isCluster() {
        return cluster;
    }

    StatefulRedisPubSubConnection<String, String> subscribing() {
        return subscribing.connectPubSub(StringCodec.UTF8);
    }

    /** A connection for one command that blocks, until {@link #end}. */
    LettuceSender take() {
        LettuceSender sender = connected();
        taken.add(sender);
        if (closed) { // And may not have seen it.
            end(sender, false);
            throw new RedisException("the client was closed");
        }
        return sender;
    }

    private LettuceSender connected() {
        for (LettuceSender one; (one = idle.pollFirst()) != null; ) {
            if (one.isOpen()) {
                return one;
            }
            one.close();
        }
        CompletableFuture<LettuceSender> next = late.pollFirst();
        return awaited(next == null ? connect() : next);
    }

    /** On a thread of its own: at a server that is silent Lettuce connects for up to a minute. */
    private CompletableFuture<LettuceSender> connect() {
        return CompletableFuture.supplyAsync(
                connecting,
                task -> Holds.daemons("redis-lock-connecting").newThread(task).start());
    }

    /** No longer than the caller has. One that comes late is for the next who asks. */
    private LettuceSender awaited(CompletableFuture<LettuceSender> next) {
        boolean waits = true;
        try {
            LettuceSender sender = LettuceWire.answer(next.copy(), answerMs);
            waits = false;
            return sender;
        } finally {
            if (waits) {
                late.addFirst(next);
                next.whenComplete((sender, failed) -> {
                    if (late.remove(next) && sender != null) {
                        giveBack(sender);
                    }
                });
            }
        }
    }

    /** One on which a command may still wait is of no more use. */
    void end(LettuceSender sender, boolean usable) {
        taken.remove(sender);
        if (usable) {
            giveBack(sender);
        } else {
            sender.close();
        }
    }

    private void giveBack(LettuceSender sender) {
        if (closed || idle.size() >= MOST_IDLE) {
            sender.close();
            return;
        }
        idle.addFirst(sender);
        if (closed && idle.remove(sender)) {
            sender.close();
        }
    }

    /** What the application gave stays open. */
    @Override
    public void close() {
        closed = true;
        taken.forEach(LettuceSender::close);
        for (LettuceSender one; (one = idle.pollFirst()) != null; ) {
            one.closeNow();
        }
        closing.run();
    }
}
