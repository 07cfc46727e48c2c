package io.github.redislock.bench;

import io.github.redislock.RedisHold;
import io.github.redislock.RedisLock;
import io.github.redislock.RedisLockClient;
import io.github.redislock.RedisSemaphore;

import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Lock;

/**
 * Semaphores and multi-locks of this client beside those of Redisson: {@code Several URL ROUNDS
 * SECONDS}. 16 threads share 4 permits and hold one for 1 ms; 12 threads take two or three of five
 * locks and hold them for 1 ms. The libraries take turns. For each it prints the median of the
 * acquisitions per second over the rounds, the longest wait, and the most threads that had no turn
 * in a round.
 */
public final class Several {
    private static final int PERMITS = 4;
    private static final int KEYS = 5;

    private interface Turn {
        void take(Random random) throws InterruptedException;
    }

    private record Round(double perSecond, double longestMs, int starved) {}

    private Several() {}

    /** Runs it. */
    public static void main(String[] words) throws Exception {
        String url = words[0];
        int rounds = Integer.parseInt(words[1]);
        double seconds = Double.parseDouble(words[2]);
        Config config = new Config();
        config.useSingleServer().setAddress(url);
        RedissonClient redisson = Redisson.create(config);
        try (RedisLockClient ours = RedisLockClient.connect(url)) {
            RedisSemaphore semaphore = ours.semaphore("several:permits:ours", PERMITS);
            RPermitExpirableSemaphore theirs =
                    redisson.getPermitExpirableSemaphore("several:permits:theirs");
            theirs.delete();
            theirs.trySetPermits(PERMITS);
            Map<String, Turn> ways = new TreeMap<>();
            ways.put("16 semaphore, redis-lock", random -> hold(semaphore));
            ways.put("16 semaphore, Redisson", random -> hold(theirs));
            ways.put(
                    "12 multi-lock, redis-lock",
                    random -> hold(ours.multiLock(some(random, ours))));
            ways.put(
                    "12 multi-lock, Redisson",
                    random -> hold(redisson.getMultiLock(some(random, redisson))));
            Map<String, List<Round>> all = new TreeMap<>();
            for (int round = 0; round < rounds; round++) {
                for (Map.Entry<String, Turn> way : ways.entrySet()) {
                    int threads = Integer.parseInt(way.getKey().substring(0, 2));
                    Round result = play(way.getValue(), threads, seconds);
                    all.computeIfAbsent(way.getKey(), name -> new ArrayList<>()).add(result);
                }
            }
            all.forEach(Several::print);
        } finally {
            redisson.shutdown();
        }
    }

    private static void hold(RedisSemaphore semaphore) throws InterruptedException {
        RedisHold permit = semaphore.acquire();
        work();
        permit.release();
    }

    private static void hold(RPermitExpirableSemaphore semaphore) throws InterruptedException {
        String permit = semaphore.acquire(30, TimeUnit.SECONDS);
        work();
        semaphore.release(permit);
    }

    private static void hold(Lock lock) throws InterruptedException {
        lock.lockInterruptibly();
        try {
            work();
        } finally {
            lock.unlock();
        }
    }

    private static void work() throws InterruptedException {
        Thread.sleep(1);
    }

    private static RedisLock[] some(Random random, RedisLockClient client) {
        return keys(random).stream().map(client::lock).toArray(RedisLock[]::new);
    }

    private static RLock[] some(Random random, RedissonClient client) {
        return keys(random).stream().map(key -> client.getLock("r" + key)).toArray(RLock[]::new);
    }

    private static List<String> keys(Random random) {
        List<String> keys = new ArrayList<>();
        for (int n = 0; n < KEYS; n++) {
            keys.add("several:" + n);
        }
        Collections.shuffle(keys, random);
        return keys.subList(0, 2 + random.nextInt(2));
    }

    private static Round play(Turn turn, int threads, double seconds) throws InterruptedException {
        int[] turns = new int[threads];
        long[] longest = new long[threads];
        long end = System.nanoTime() + (long) (seconds * 1e9);
        List<Thread> all = new ArrayList<>();
        for (int n = 0; n < threads; n++) {
            int own = n;
            Random random = new Random(n);
            Thread thread = new Thread(() -> {
                try {
                    while (System.nanoTime() < end) {
                        long asked = System.nanoTime();
                        turn.take(random);
                        long waited = System.nanoTime() - asked;
                        longest[own] = Math.max(longest[own], waited);
                        turns[own] += System.nanoTime() < end ? 1 : 0;
                    }
                } catch (InterruptedException ended) {
                    Thread.currentThread().interrupt();
                }
            });
            thread.start();
            all.add(thread);
        }
        for (Thread thread : all) {
            thread.join();
        }
        int starved = (int) Arrays.stream(turns).filter(n -> n == 0).count();
        double longestMs = Arrays.stream(longest).max().orElse(0) / 1e6;
        return new Round(Arrays.stream(turns).sum() / seconds, longestMs, starved);
    }

    private static void print(String name, List<Round> rounds) {
        double[] rates = rounds.stream().mapToDouble(Round::perSecond).sorted().toArray();
        double longest = rounds.stream().mapToDouble(Round::longestMs).max().orElse(0);
        int starved = rounds.stream().mapToInt(Round::starved).max().orElse(0);
        System.out.printf(
                Locale.ROOT,
                "| %s | %.0f (%.0f to %.0f) | %.0f ms | %d |%n",
                name.substring(3),
                rates[rates.length / 2],
                rates[0],
                rates[rates.length - 1],
                longest,
                starved);
    }
}
