package io.github.redislock;

import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;

/**
 * Hears how the waits of all end, on one connection: each request names its channel. It is asked
 * whether it is still there while somebody waits, because a firewall may forget it, and it says
 * nothing of its own.
 */
final class Listener {
    private static final long MOST_BEAT_NANOS = TimeUnit.SECONDS.toNanos(5);

    private final Engine engine;
    private final String channel = "redis-lock:" + UUID.randomUUID();
    private final Map<String, Acquire> waiting = new ConcurrentHashMap<>();
    private volatile Driver.Subscription listening;

    Listener(Engine engine) {
        this.engine = engine;
        try {
            listening = listen();
        } catch (RuntimeException failed) {
            String refusal = engine.driver.refusal(failed);
            if (refusal == null || engine.kind(failed) == Replies.Kind.FINAL) {
                throw failed;
            }
        }
        engine.at(listening == null ? Engine.pace() : beatNanos(), this::beat);
    }

    private Driver.Subscription listen() {
        return engine.driver.listen(channel, this::hear, this::askAgain);
    }

    /** Until a server that is busy lets it, waiters ask again and again. */
    boolean hears() {
        return listening != null;
    }

    void add(Acquire request) {
        waiting.put(request.token, request);
    }

    void remove(Acquire request) {
        waiting.remove(request.token);
    }

    void waitBy(Request request) {
        request.add("NOTIFY").add(2 * engine.options.slice().toMillis()).add(channel);
    }

    /** On the library's thread, so it only hands on: event fence length-of-the-key key token. */
    private void hear(String message) {
        String[] words = message.split(" ", 4);
        byte[] rest = words[3].getBytes(StandardCharsets.UTF_8);
        int from = Integer.parseInt(words[2]) + 1;
        String token = new String(rest, from, rest.length - from, StandardCharsets.UTF_8);
        Acquire request = waiting.get(token);
        if (request != null) {
            request.told(words[0], Long.parseLong(words[1]));
        }
    }

    private void askAgain() {
        waiting.values().forEach(Acquire::again);
    }

    /** Two of these fit into the grace, so that no place is lost. */
    private long beatNanos() {
        return Math.max(
                TimeUnit.MILLISECONDS.toNanos(engine.options.answerMs()),
                Math.min(MOST_BEAT_NANOS, engine.options.grace().toNanos() / 4));
    }

    private void beat() {
        if (listening == null) {
            connect();
            return;
        }
        // One that is not open the library connects anew.
        if (waiting.isEmpty() || !listening.open().getAsBoolean()) {
            engine.at(beatNanos(), this::beat);
            return;
        }
        listening
                .ping()
                .get()
                .orTimeout(beatNanos(), TimeUnit.NANOSECONDS)
                .whenComplete((pong, failed) -> {
                    if (failed == null || engine.driver.refusal(Engine.cause(failed)) != null) {
                        engine.at(beatNanos(), this::beat);
                    } else {
                        connect();
                    }
                });
    }

    /** It may take long. */
    private void connect() {
        Engine.daemons("redis-lock-listening").newThread(this::listenAnew).start();
    }

    private void listenAnew() {
        Driver.Subscription before = listening;
        try {
            listening = listen();
            if (before != null) {
                before.close().run();
            }
            if (engine.isClosed()) { // And may have seen only that one.
                listening.close().run();
            }
            askAgain(); // What was published meanwhile is lost.
        } catch (RuntimeException outOfReach) {
            // The next beat tries it again.
        }
        engine.at(listening == null ? Engine.pace() : beatNanos(), this::beat);
    }

    /** Another server may be there now, and the one that is listened to may live on. */
    void leave() {
        if (hears() && listening.open().getAsBoolean()) {
            listening.leave().run();
        }
    }

    void close() {
        if (hears()) {
            listening.close().run();
        }
    }
}
