package io.github.redislock;

import io.github.redislock.testing.Eventually;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.*;
import java.util.stream.Stream;

/** Another thread, which does one thing after the other. */
final class Other implements AutoCloseable {
    interface Action {
        void run() throws Exception;
    }

    private final ExecutorService executor = Executors.newSingleThreadExecutor(task -> {
        Thread thread = new Thread(task, "other");
        thread.setDaemon(true);
        return thread;
    });
    final Thread thread = does(Thread::currentThread);

    <T> Future<T> starts(Callable<T> action) {
        return executor.submit(action);
    }

    Future<Void> starts(Action action) {
        return executor.submit(() -> {
            action.run();
            return null;
        });
    }

    <T> T does(Callable<T> action) {
        return result(starts(action));
    }

    void does(Action action) {
        result(starts(action));
    }

    /** What came of it; its exception as it was thrown, if it is unchecked. */
    static <T> T result(Future<T> future) {
        return result(future, Eventually.BOUND.toMillis());
    }

    static <T> T result(Future<T> future, long boundMs) {
        try {
            return future.get(boundMs, TimeUnit.MILLISECONDS);
        } catch (ExecutionException failed) {
            if (failed.getCause() instanceof RuntimeException cause) {
                throw cause;
            }
            throw new AssertionError(failed.getCause());
        } catch (InterruptedException | TimeoutException failed) {
            throw new AssertionError(failed);
        }
    }

    static void quietly(Action action) {
        try {
            action.run();
        } catch (Exception failed) {
            throw new IllegalStateException(failed);
        }
    }

    interface Turn {
        void take(int thread) throws Exception;
    }

    /** So many threads, each of which takes so many turns. */
    static void inThreads(int threads, int turns, Turn turn) {
        List<Other> others = Stream.generate(Other::new).limit(threads).toList();
        List<Future<Void>> ends = new ArrayList<>();
        for (int number = 0; number < threads; number++) {
            int mine = number;
            ends.add(others.get(number).starts(() -> {
                for (int count = 0; count < turns; count++) {
                    turn.take(mine);
                }
            }));
        }
        ends.forEach(Other::result);
        others.forEach(Other::close);
    }

    @Override
    public void close() {
        executor.shutdownNow();
    }
}
