package io.github.redislock;

import java.util.UUID;
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
    private volatile Driver.Subscription listening;

    Listener(Engine engine) {
        this.engine = engine;
        try {
            listening = listen();
        } catch (RuntimeException failed) {
            if (engine.kind(failed) != Replies.Kind.TEMPORARY) {
                throw failed;
            }
        }
        planBeat();
    }

    private Driver.Subscription listen() {
        return engine.driver.listen(channel, this::hear, engine::askAgain);
    }

    /** Until a server that is busy lets it, waiters ask again and again. */
    boolean hears() {
        return listening != null;
    }

    void waitBy(Request request) {
        request.add("NOTIFY").add(2 * engine.options.slice().toMillis()).add(channel);
    }

    /** On the library's thread, so it only hands on: event fence length-of-the-key key token. */
    private void hear(String message) {
        String[] words = message.split(" ", 3);
        String token = message.substring(message.lastIndexOf(' ') + 1);
        Acquire request = engine.waiting.get(token);
        if (request != null) {
            request.told(words[0], Long.parseLong(words[1]));
        }
    }

    /** Two of these fit into the grace, so that no place is lost. */
    private long beatNanos() {
        return Math.max(
                TimeUnit.MILLISECONDS.toNanos(engine.options.answerMs()),
                Math.min(MOST_BEAT_NANOS, engine.options.grace().toNanos() / 4));
    }

    private void planBeat() {
        engine.at(hears() ? beatNanos() : Engine.PACE_NANOS, this::beat);
    }

    private void beat() {
        if (!hears()) {
            listenAnew();
        } else if (engine.waiting.isEmpty() || !listening.open().getAsBoolean()) {
            planBeat(); // One that is not open the library connects anew.
        } else {
            listening
                    .ping()
                    .get()
                    .orTimeout(beatNanos(), TimeUnit.NANOSECONDS)
                    .whenComplete((pong, failed) -> {
                        if (failed == null || engine.refusal(failed) != null) {
                            planBeat();
                        } else {
                            listenAnew();
                        }
                    });
        }
    }

    /** On a thread of its own, as it may take long. */
    private void listenAnew() {
        Engine.daemons("redis-lock-listening").newThread(() -> {
            Driver.Subscription before = listening;
            try {
                listening = listen();
                if (before != null) {
                    before.close().run();
                }
                if (engine.closed) { // And may have seen only that one.
                    listening.close().run();
                }
                engine.askAgain(); // What was published meanwhile is lost.
            } catch (RuntimeException outOfReach) {
                // The next beat tries it again.
            }
            planBeat();
        }).start();
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
