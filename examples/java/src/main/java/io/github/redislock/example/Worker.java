package io.github.redislock.example;

import redis.clients.jedis.RedisClient;
import redis.clients.jedis.exceptions.JedisConnectionException;

import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Optional;

/**
 * Takes a lock, works on a resource while a watchdog keeps the lock alive, and stops when it is
 * lost.
 */
public final class Worker {
    private static final int DONE = 0;
    private static final int NOT_GRANTED = 2;
    private static final int LOST = 3;

    private final RedisClient redis;
    private final Arguments arguments;
    private final String resource = script("/resource.lua");

    private Worker(RedisClient redis, Arguments arguments) {
        this.redis = redis;
        this.arguments = arguments;
    }

    public static void main(String[] words) {
        int status = 1;
        try {
            Arguments arguments = Arguments.parse(List.of(words));
            try (RedisClient redis =
                    Connections.open(arguments.url(), arguments.ttlMs(), arguments.blockMs())) {
                status = new Worker(redis, arguments).run();
            }
        } catch (Exception failed) {
            failed.printStackTrace();
        }
        System.exit(status);
    }

    /** One event, one line, at once. */
    static synchronized void say(String event) {
        System.out.println(event);
        System.out.flush();
    }

    private int run() throws InterruptedException {
        Optional<Lease> granted = Lease.acquire(redis, arguments);
        if (granted.isEmpty()) {
            say("gave-up");
            return NOT_GRANTED;
        }
        try (Lease lease = granted.get()) {
            say("granted " + lease.fence());
            lease.keepAlive();
            return work(lease);
        }
    }

    private int work(Lease lease) throws InterruptedException {
        for (int turn = 1; turn <= arguments.writes(); turn++) {
            Optional<String> lost = lease.lostWithin(arguments.pauseMs());
            try {
                if (lost.isEmpty() && !use(lease, turn)) {
                    say("refused " + lease.fence());
                    return LOST;
                }
            } catch (JedisConnectionException noServer) {
                lost = lease.lost();
            }
            if (lost.isPresent()) {
                say("lost " + lost.get());
                return LOST;
            }
        }
        boolean released = lease.release();
        say("released " + (released ? 1 : 0));
        return released ? DONE : LOST;
    }

    /**
     * Reads or writes once, sending again while the lease lasts; false when the resource has seen a
     * newer fence.
     */
    private boolean use(Lease lease, int turn) throws InterruptedException {
        if (arguments.shared()) {
            String value =
                    Connections.resending(
                            () -> lease.lost().isPresent(),
                            () -> redis.hget(arguments.resource(), "writes"));
            say("read " + (value == null ? "0" : value));
            return true;
        }
        List<String> keys = List.of(arguments.resource());
        List<String> values = List.of(Long.toString(lease.fence()), arguments.token());
        Object accepted =
                Connections.resending(
                        () -> lease.lost().isPresent(), () -> redis.eval(resource, keys, values));
        if (accepted.equals(0L)) {
            return false;
        }
        say("wrote " + turn);
        return true;
    }

    private static String script(String name) {
        try (InputStream in = Worker.class.getResourceAsStream(name)) {
            return new String(in.readAllBytes(), StandardCharsets.UTF_8);
        } catch (IOException broken) {
            throw new UncheckedIOException(broken);
        }
    }
}
