package io.github.redislock.bench;

import io.github.redislock.RedisLock;
import io.github.redislock.RedisLockClient;

import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

import java.util.*;
import java.util.concurrent.locks.Lock;
import java.util.function.Function;

/**
 * Multi-locks of this client beside those of Redisson: {@code Several URL ROUNDS SECONDS}. 12
 * threads take two or three of five locks and hold them for 1 ms. The libraries take turns. For
 * each it prints the median of the acquisitions per second over the rounds, the longest wait, and
 * the most threads that had no turn in a round.
 */
public final class Several {
    private static final int THREADS = 12;
    private static final int KEYS = 5;

    private record Round(double perSecond, double longestMs, int starved) {}

    private Several() {}

    /** Runs it. */
    public static void main(String[] words) throws Exception {
        Config config = new Config();
        config.useSingleServer().setAddress(words[0]);
        RedissonClient redisson = Redisson.create(config);
        try (RedisLockClient ours = RedisLockClient.connect(words[0])) {
            Map<String, Function<Random, Lock>> ways = Map.of(
                    "multi-lock, redis-lock", random -> ours.multiLock(some(random, ours)),
                    "multi-lock, Redisson",
                            random -> redisson.getMultiLock(some(random, redisson)));
            Map<String, List<Round>> all = new TreeMap<>();
            for (int round = 0; round < Integer.parseInt(words[1]); round++) {
                ways.forEach((name, way) -> all.computeIfAbsent(name, each -> new ArrayList<>())
                        .add(play(way, Double.parseDouble(words[2]))));
            }
            all.forEach(Several::print);
        } finally {
            redisson.shutdown();
        }
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

    private static Round play(Function<Random, Lock> way, double seconds) {
        int[] turns = new int[THREADS];
        long[] longest = new long[THREADS];
        long end = System.nanoTime() + (long) (seconds * 1e9);
        Crew.work(THREADS, own -> {
            Random random = new Random(own);
            while (System.nanoTime() < end) {
                long asked = System.nanoTime();
                Lock lock = way.apply(random);
                lock.lock();
                Crew.pause(1);
                lock.unlock();
                longest[own] = Math.max(longest[own], System.nanoTime() - asked);
                turns[own] += System.nanoTime() < end ? 1 : 0;
            }
        });
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
                name,
                rates[rates.length / 2],
                rates[0],
                rates[rates.length - 1],
                longest,
                starved);
    }
}
