package io.github.redislock.bench;

import io.github.redislock.RedisLockClient;

import org.redisson.Redisson;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

import java.util.List;
import java.util.concurrent.*;
import java.util.concurrent.locks.Lock;
import java.util.function.Supplier;
import java.util.stream.IntStream;

/**
 * N threads take one lock in turns, for so long: {@code bench LIBRARY --url URL --lock KEY
 * --clients N --hold-ms H --seconds S}. Prints a line per acquisition, {@code CLIENT ASKED_US
 * GRANTED_US RELEASED_US}, on one clock from the common start, at which {@code start} goes to
 * stderr. Each library has its defaults, which are a lease of 30 s with a watchdog.
 */
public final class Bench {
    private static final int WARM_UP = 20;

    private Bench() {}

    /** Runs it. */
    public static void main(String[] words) throws Exception {
        List<String> all = List.of(words);
        if (all.contains("--list")) {
            System.out.println("redis-lock\nredisson");
            return;
        }
        String url = option(all, "--url", "redis://127.0.0.1:6379");
        String key = option(all, "--lock", "bench");
        int clients = Integer.parseInt(option(all, "--clients", "8"));
        long holdMs = Long.parseLong(option(all, "--hold-ms", "1"));
        long nanos = (long) (Double.parseDouble(option(all, "--seconds", "5")) * 1e9);
        if (words[0].equals("redis-lock")) {
            try (RedisLockClient ours = RedisLockClient.connect(url)) {
                System.out.println(run(() -> ours.lock(key), clients, holdMs, nanos));
            }
        } else {
            Config config = new Config();
            config.useSingleServer().setAddress(url);
            RedissonClient redisson = Redisson.create(config);
            System.out.println(run(() -> redisson.getLock(key), clients, holdMs, nanos));
            redisson.shutdown();
        }
    }

    private static String option(List<String> words, String name, String otherwise) {
        int at = words.indexOf(name);
        return at < 0 ? otherwise : words.get(at + 1);
    }

    private static String run(Supplier<Lock> locks, int clients, long holdMs, long nanos)
            throws Exception {
        long[] start = {0};
        CyclicBarrier ready = new CyclicBarrier(clients, () -> {
            start[0] = System.nanoTime();
            System.err.println("start");
        });
        ExecutorService crew = Executors.newFixedThreadPool(clients);
        List<Callable<String>> work = IntStream.range(0, clients)
                .<Callable<String>>mapToObj(client -> () -> {
                    // The library connects, and the JVM compiles, before anything is measured.
                    for (int turn = 0; turn < WARM_UP; turn++) {
                        takeTurn(locks.get(), 0, System.nanoTime());
                    }
                    ready.await();
                    StringBuilder lines = new StringBuilder();
                    while (System.nanoTime() - start[0] < nanos) {
                        String turn = takeTurn(locks.get(), holdMs, start[0]);
                        lines.append(client).append(' ').append(turn).append('\n');
                    }
                    return lines.toString();
                })
                .toList();
        StringBuilder lines = new StringBuilder();
        for (Future<String> each : crew.invokeAll(work)) {
            lines.append(each.get());
        }
        crew.shutdown();
        return lines.toString().strip();
    }

    private static String takeTurn(Lock lock, long holdMs, long startNanos)
            throws InterruptedException {
        long asked = micros(startNanos);
        lock.lock();
        long granted = micros(startNanos);
        Thread.sleep(holdMs);
        lock.unlock();
        return asked + " " + granted + " " + micros(startNanos);
    }

    private static long micros(long startNanos) {
        return TimeUnit.NANOSECONDS.toMicros(System.nanoTime() - startNanos);
    }
}
