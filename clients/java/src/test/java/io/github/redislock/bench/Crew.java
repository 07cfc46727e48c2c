package io.github.redislock.bench;

import java.util.List;
import java.util.function.IntConsumer;
import java.util.stream.IntStream;

/** Threads that work together. */
final class Crew {
    private Crew() {}

    /** Has so many threads do it, each with its number, and waits for all. */
    static void work(int threads, IntConsumer work) {
        List<Thread> all = IntStream.range(0, threads)
                .mapToObj(number -> new Thread(() -> work.accept(number)))
                .toList();
        all.forEach(Thread::start);
        all.forEach(thread -> quietly(thread::join));
    }

    static void pause(long ms) {
        quietly(() -> Thread.sleep(ms));
    }

    interface Waiting {
        void run() throws Exception;
    }

    static void quietly(Waiting wait) {
        try {
            wait.run();
        } catch (Exception never) {
            throw new IllegalStateException(never);
        }
    }
}
