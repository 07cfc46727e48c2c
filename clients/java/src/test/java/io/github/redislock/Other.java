package io.github.redislock;

import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

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
        try {
            return future.get(Eventually.BOUND.toSeconds(), TimeUnit.SECONDS);
        } catch (ExecutionException failed) {
            if (failed.getCause() instanceof RuntimeException cause) {
                throw cause;
            }
            throw new AssertionError(failed.getCause());
        } catch (InterruptedException | TimeoutException failed) {
            throw new AssertionError(failed);
        }
    }

    @Override
    public void close() {
        executor.shutdownNow();
    }
}
