package io.github.redislock.bench;

import io.github.redislock.RedisLock;
import io.github.redislock.RedisLockClient;

import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.locks.Lock;
import java.util.function.Supplier;
import java.util.stream.*;

/**
 * N threads take one lock in turns, for so long: {@code bench LIBRARY --url URL --lock KEY
 * --clients N --hold-ms H --seconds S}. Prints a line per acquisition, {@code CLIENT ASKED_US
 * GRANTED_US RELEASED_US}, on one clock from the common start, at which {@code start} goes to
 * stderr. Each library has its defaults, which are a lease of 30 s with a watchdog.
 *
 * <p>{@code redis-lock-several} and {@code redisson-several} take two or three of five locks at
 * once.
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
        double seconds = Double.parseDouble(option(all, "--seconds", "5"));
        Config config = new Config();
        config.useSingleServer().setAddress(url);
        RedissonClient redisson = words[0].startsWith("redisson") ? Redisson.create(config) : null;
        try (RedisLockClient ours = RedisLockClient.connect(url)) {
            Supplier<Lock> locks = switch (words[0]) {
                case "redis-lock" -> () -> ours.lock(key);
                case "redisson" -> () -> redisson.getLock(key);
                case "redis-lock-several" ->
                    () -> ours.multiLock(some(key).map(ours::lock).toArray(RedisLock[]::new));
                case "redisson-several" ->
                    () -> redisson.getMultiLock(
                            some(key).map(redisson::getLock).toArray(RLock[]::new));
                default -> throw new IllegalArgumentException("no such library: " + words[0]);
            };
            System.out.println(run(locks, clients, holdMs, (long) (seconds * 1e9)));
        } finally {
            if (redisson != null) {
                redisson.shutdown();
            }
        }
    }

    private static String option(List<String> words, String name, String otherwise) {
        int at = words.indexOf(name);
        return at < 0 ? otherwise : words.get(at + 1);
    }

    private static Stream<String> some(String key) {
        List<Integer> numbers = IntStream.range(0, 5).boxed().collect(Collectors.toList());
        Random random = ThreadLocalRandom.current();
        Collections.shuffle(numbers, random);
        return numbers.stream().limit(2 + random.nextInt(2)).map(number -> key + ":" + number);
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
