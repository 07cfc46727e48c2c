package io.github.redislock;

import io.lettuce.core.RedisChannelHandler;
import io.lettuce.core.RedisCommandExecutionException;
import io.lettuce.core.RedisCommandTimeoutException;
import io.lettuce.core.RedisConnectionStateListener;
import io.lettuce.core.RedisException;

import java.net.SocketAddress;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * Over Lettuce. All commands share one connection, but for those that block: a waiting thread has a
 * connection for itself, or asks again and again where none can be made.
 */
final class LettuceWire implements Wire {
    static final String NO_LINGER =
            "linger binds a hold to one connection, and in a cluster there is one per node";

    static final long CLUSTER_SLICE_MS = 2_000;

    private final LettuceServers servers;
    private final int answerMs;
    private final boolean failsOver;
    private final Runnable closing;
    private RedisConnectionStateListener listener;

    LettuceWire(LettuceServers servers, int answerMs, boolean failsOver, Runnable closing) {
        this.servers = servers;
        this.answerMs = answerMs;
        this.failsOver = failsOver;
        this.closing = closing;
    }

    @Override
    public Object send(Request request) {
        if (request.blockMs == 0) {
            return ask(request);
        }
        if (!servers.canBlock()) {
            return poll(request, this::ask);
        }
        // A connection to several nodes does not say that one of them is gone: it is asked again
        // after a while, at the same place.
        request.blockMs =
                servers.isCluster() ? Math.min(CLUSTER_SLICE_MS, request.blockMs) : request.blockMs;
        LettuceSender own = servers.take();
        boolean usable = false;
        try {
            Object reply = answer(own.dispatch(request), request.blockMs + answerMs);
            usable = true;
            // Its end is to be bound to the connection that stays, before this one may be closed.
            return reply instanceof Long && request.lingers()
                    ? ask(request.atOnce(false))
                    : reply;
        } catch (RedisCommandExecutionException refusal) {
            usable = !servers.isDemoted(refusal);
            throw refusal;
        } finally {
            servers.end(own, usable);
        }
    }

    private Object ask(Request request) {
        return answer(servers.send(request), answerMs);
    }

    @Override
    public List<Object> sendAll(List<Request> requests) {
        List<CompletableFuture<Object>> sent = new ArrayList<>();
        requests.forEach(request -> sent.add(servers.send(request)));
        List<Object> replies = new ArrayList<>();
        sent.forEach(reply -> replies.add(answer(reply, answerMs)));
        return replies;
    }

    /** What does not come in time is cancelled. */
    static <T> T answer(CompletableFuture<T> sent, long mostMs) {
        try {
            int leftMs = AnswerTime.leftMs((int) Math.min(Integer.MAX_VALUE, mostMs));
            return sent.get(leftMs, TimeUnit.MILLISECONDS);
        } catch (ExecutionException failed) {
            if (failed.getCause() instanceof RuntimeException cause) {
                throw cause;
            }
            throw new RedisException(failed.getCause());
        } catch (TimeoutException silent) {
            sent.cancel(false); // Or Lettuce would send it when nobody asks any more.
            throw new RedisCommandTimeoutException("no answer in time");
        } catch (CancellationException closed) {
            throw new RedisException("the connection was closed", closed);
        } catch (InterruptedException flag) {
            sent.cancel(false);
            Thread.currentThread().interrupt();
            throw new RedisException("interrupted", flag);
        }
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
        return servers.shared().writtenAgain();
    }

    @Override
    public String whyNoLinger() {
        return servers.isCluster() ? NO_LINGER : null;
    }

    @Override
    public synchronized void onReconnect(Runnable news) {
        listener = new RedisConnectionStateListener() {
            @Override
            public void onRedisConnected(
                    RedisChannelHandler<?, ?> connection, SocketAddress address) {
                news.run();
            }
        };
        servers.shared().addListener(listener);
    }

    @Override
    public synchronized void close() {
        if (listener != null) {
            servers.shared().removeListener(listener);
        }
        servers.close();
        closing.run();
    }
}
