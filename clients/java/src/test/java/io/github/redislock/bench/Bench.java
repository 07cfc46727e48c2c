package io.github.redislock.bench;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Lock;
import picocli.CommandLine;
import picocli.CommandLine.Option;
import picocli.CommandLine.Parameters;

/**
 * N threads take one lock in turns, for so long: {@code bench LIBRARY --url URL --lock KEY
 * --clients N --hold-ms H --seconds S}. Prints a line per acquisition, {@code CLIENT ASKED_US
 * GRANTED_US RELEASED_US}, on one clock from the common start, at which {@code start} goes to
 * stderr.
 */
public final class Bench {
    private record Turn(int client, long askedUs, long grantedUs, long releasedUs) {}

    private interface Settings {
        @Parameters(arity = "0..1", defaultValue = "", description = "see --list")
        String library();

        @Option(names = "--list", description = "print the libraries, and end")
        boolean list();

        @Option(names = "--url", defaultValue = "redis://127.0.0.1:6379")
        String url();

        @Option(names = "--lock", defaultValue = "bench")
        String lock();

        @Option(names = "--clients", defaultValue = "8")
        int clients();

        @Option(names = "--hold-ms", defaultValue = "1")
        long holdMs();

        @Option(names = "--seconds", defaultValue = "5")
        double seconds();
    }

    private Bench() {}

    /** Runs it. */
    public static void main(String[] words) throws Exception {
        Settings settings = CommandLine.populateSpec(Settings.class, words);
        if (settings.list()) {
            Contender.NAMES.forEach(System.out::println);
            return;
        }
        List<Turn> turns;
        try (Contender contender =
                Contender.named(settings.library(), settings.url(), settings.lock())) {
            turns = run(contender, settings);
        }
        StringBuilder lines = new StringBuilder();
        for (Turn turn : turns) {
            lines.append(turn.client()).append(' ').append(turn.askedUs()).append(' ');
            lines.append(turn.grantedUs()).append(' ').append(turn.releasedUs()).append('\n');
        }
        System.out.print(lines);
        System.out.flush();
    }

    private static List<Turn> run(Contender contender, Settings settings) {
        int clients = settings.clients();
        warmUp(contender, clients);
        long[] startNanos = {0};
        CyclicBarrier ready = new CyclicBarrier(clients, () -> {
            startNanos[0] = System.nanoTime();
            System.err.println("start");
        });
        List<List<Turn>> all = new ArrayList<>();
        for (int client = 0; client < clients; client++) {
            all.add(new ArrayList<>());
        }
        Crew.work(clients, client -> {
            Crew.quietly(ready::await);
            takeTurns(contender.lock(), settings, client, startNanos[0], all.get(client));
        });
        return all.stream().flatMap(List::stream).toList();
    }

    private static void takeTurns(
            Lock lock, Settings settings, int client, long startNanos, List<Turn> turns) {
        long endNanos = startNanos + (long) (settings.seconds() * 1e9);
        long holdMs = settings.holdMs();
        while (System.nanoTime() - endNanos < 0) {
            long asked = System.nanoTime();
            lock.lock();
            long granted = System.nanoTime();
            Crew.pause(holdMs);
            lock.unlock();
            turns.add(new Turn(
                    client,
                    micros(asked - startNanos),
                    micros(granted - startNanos),
                    micros(System.nanoTime() - startNanos)));
        }
    }

    private static long micros(long nanos) {
        return TimeUnit.NANOSECONDS.toMicros(nanos);
    }

    /**
     * Has the library connect, and the JVM compile, before anything is measured: every client once
     * through all.
     */
    private static void warmUp(Contender contender, int clients) {
        CyclicBarrier together = new CyclicBarrier(clients);
        Crew.work(clients, client -> {
            Crew.quietly(together::await);
            for (int turn = 0; turn < 20; turn++) {
                contender.lock().lock();
                contender.lock().unlock();
            }
        });
    }
}
