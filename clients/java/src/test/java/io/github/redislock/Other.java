package io.github.redislock;

import java.util.concurrent.*;

/** Another thread, which does one thing after the other. */
final class Other implements AutoCloseable {
    interface Action {
        void run() throws Exception;
    }

    private final ExecutorService executor =
            Executors.newSingleThreadExecutor(Engine.daemons("other"));
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
            return future.get(3, TimeUnit.MINUTES);
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
        quietly(() -> {
            action.run();
            return null;
        });
    }

    static <T> T quietly(Callable<T> action) {
        try {
            return action.call();
        } catch (RuntimeException failed) {
            throw failed;
        } catch (Exception failed) {
            throw new IllegalStateException(failed);
        }
    }

    @Override
    public void close() {
        executor.shutdownNow();
    }
}
