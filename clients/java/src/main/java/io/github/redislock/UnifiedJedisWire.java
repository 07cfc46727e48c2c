package io.github.redislock;

import redis.clients.jedis.UnifiedJedis;

import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;

/**
 * Over a client of the application: {@code JedisPooled}, {@code RedisClient}, {@code JedisCluster},
 * {@code JedisSentineled} and so on. Its pool has a bound, so only a few threads at once wait with
 * a connection in hand. The others ask again and again, at their places in the queue.
 */
final class UnifiedJedisWire extends JedisWire {

    private final UnifiedJedis jedis;
    private final Semaphore waiters;

    UnifiedJedisWire(UnifiedJedis jedis, int waiters) {
        this.jedis = jedis;
        this.waiters = new Semaphore(waiters, true);
    }

    @Override
    public Object send(Request request) {
        if (request.blockMs == 0) {
            return execute(request);
        }
        try {
            // Without a place it is better to stand in line here than to lose it each time.
            long patienceMs = request.keepMs > 0 ? 0 : request.blockMs;
            if (waiters.tryAcquire(patienceMs, TimeUnit.MILLISECONDS)) {
                try {
                    return execute(request);
                } finally {
                    waiters.release();
                }
            }
            return poll(request, this::execute);
        } catch (InterruptedException flag) {
            Thread.currentThread().interrupt();
            return null; // The caller looks at the flag before it asks again.
        }
    }

    private Object execute(Request request) {
        // The way that all versions have in a cluster, too: the first key tells the node.
        byte[][] words = request.words().stream().map(Request.Word::bytes).toArray(byte[][]::new);
        byte[] key = request.firstKey();
        return plain(
                request.blockMs > 0
                        ? jedis.sendBlockingCommand(key, name(request), words)
                        : jedis.sendCommand(key, name(request), words));
    }

    @Override
    public boolean failsOver() {
        return true;
    }

    /**
     * Its pool closes a connection that is idle for a minute, and with it would end what is bound
     * to it. Only a pipeline keeps a connection. The method that makes one has another result type
     * from Jedis 7 on, and a pipeline of 5.0 that loses its connection never frees its place in the
     * pool.
     */
    @Override
    public String whyNoLinger() {
        return "linger binds a hold to a connection, and those of a UnifiedJedis come and go: use"
                + " RedisLockClient.connect, a JedisPool or Lettuce";
    }

    /** The client stays its owner's to close. */
    @Override
    public void close() {}
}
