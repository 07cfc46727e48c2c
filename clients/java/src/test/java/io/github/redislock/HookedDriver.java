package io.github.redislock;

import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.function.Consumer;

/** Jedis, with a test that is asked before each command and after each answer. */
final class HookedDriver implements Driver {
    volatile Consumer<String> before = command -> {};
    volatile Consumer<String> after = command -> {};
    private final JedisDriver jedis;
    private Runnable reconnected;

    HookedDriver(String url, LockOptions options) {
        jedis = JedisDriver.to(url, options.answerMs());
    }

    @Override
    public CompletableFuture<List<Object>> send(List<Request> requests, long endNanos) {
        before.accept(requests.get(0).command);
        return jedis.send(requests, endNanos)
                .whenComplete((reply, failed) -> after.accept(requests.get(0).command));
    }

    @Override
    public CompletableFuture<Line> open(long endNanos) {
        return jedis.open(endNanos);
    }

    @Override
    public boolean blocks() {
        return true;
    }

    @Override
    public String refusal(Throwable failed) {
        return jedis.refusal(failed);
    }

    @Override
    public boolean isOutOfReach(Throwable failed) {
        return jedis.isOutOfReach(failed);
    }

    @Override
    public RuntimeException failure(String text) {
        return jedis.failure(text);
    }

    @Override
    public boolean failsOver() {
        return false;
    }

    @Override
    public int epoch() {
        return jedis.epoch();
    }

    @Override
    public void onReconnect(Runnable news) {
        reconnected = news;
        jedis.onReconnect(news);
    }

    /** Has all holds that linger renewed, and bound to the connection again. */
    void reconnect() {
        reconnected.run();
    }

    @Override
    public void close() {
        jedis.close();
    }
}
