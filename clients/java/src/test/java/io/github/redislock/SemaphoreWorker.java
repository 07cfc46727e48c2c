package io.github.redislock;

import redis.clients.jedis.UnifiedJedis;

import java.net.URI;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Future;

/** A process whose threads take permits in turns, and note how many are at work. */
final class SemaphoreWorker {
    static final int PERMITS = 3;
    static final int THREADS = 3;
    static final int TURNS = 10;
    private static final long WORK_MS = 60;

    private SemaphoreWorker() {}

    public static void main(String[] arguments) {
        try (RedisLockClient locks = RedisLockClient.connect(arguments[0]);
                UnifiedJedis redis = TestServer.client(URI.create(arguments[0]).getPort())) {
            List<Future<Void>> ends = new ArrayList<>();
            for (int number = 0; number < THREADS; number++) {
                ends.add(new Other().starts(() -> work(locks.semaphore("a", PERMITS), redis)));
            }
            ends.forEach(Other::result);
        }
    }

    private static void work(RedisSemaphore permits, UnifiedJedis redis) throws Exception {
        for (int turn = 0; turn < TURNS; turn++) {
            try (RedisHold permit = permits.acquire()) {
                redis.rpush("seen", Long.toString(redis.incr("inside")));
                Thread.sleep(WORK_MS);
                redis.decr("inside");
                permit.exec("INCR", "done");
            }
        }
    }
}
