package io.github.redislock;

import java.util.List;
import java.util.function.Consumer;

/** Jedis, with a test that is asked before each command and after each answer. */
final class HookedWire extends JedisWire {
    volatile Consumer<String> before = command -> {};
    volatile Consumer<String> after = command -> {};
    private final JedisWire jedis;
    private Runnable reconnected;

    HookedWire(String url, LockOptions options) {
        jedis = new JedisConnectionWire(
                new OwnConnections(url, options.answerMs()), options, false);
    }

    @Override
    public Object send(Request request) {
        before.accept(request.command);
        Object reply = jedis.send(request);
        after.accept(request.command);
        return reply;
    }

    @Override
    public List<Object> sendAll(List<Request> requests) {
        return jedis.sendAll(requests);
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
