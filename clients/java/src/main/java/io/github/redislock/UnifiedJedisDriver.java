package io.github.redislock;

import redis.clients.jedis.UnifiedJedis;

import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Semaphore;

/**
 * Over a client of the application that finds its servers itself: {@code JedisSentineled} and so
 * on. Its pools have a bound, so only a few threads at once wait with a connection in hand. The
 * others ask again and again, at their places in the queue.
 */
class UnifiedJedisDriver extends JedisReplies {
    /** Half of the pool that Jedis has by default. */
    static final int WAITERS = 4;

    private final UnifiedJedis jedis;
    private final Semaphore waiters;

    UnifiedJedisDriver(UnifiedJedis jedis, int waiters) {
        // Its pool closes a connection that is idle for a minute.
        super(true, false);
        this.jedis = jedis;
        this.waiters = new Semaphore(waiters, true);
    }

    @Override
    public CompletableFuture<List<Object>> send(List<Request> requests, long endNanos) {
        return done(() -> all(requests, request -> execute(request, endNanos)));
    }

    Object execute(Request request, long endNanos) {
        // The way that all versions have in a cluster, too: the first key tells the node.
        byte[] key = Request.bytes(request.key);
        return plain(
                request,
                request.blockMs > 0
                        ? jedis.sendBlockingCommand(key, name(request), words(request))
                        : jedis.sendCommand(key, name(request), words(request)));
    }

    @Override
    public CompletableFuture<Line> open(long endNanos) {
        if (!waiters.tryAcquire()) {
            return null;
        }
        return Engine.done(new Line(
                (request, answerEnd) -> done(() -> execute(request, answerEnd)),
                usable -> waiters.release()));
    }

    /** The client stays its owner's to close. */
    @Override
    public void close() {}
}
