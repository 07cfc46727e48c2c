package io.github.redislock.bench;

import io.github.redislock.*;

import java.time.Duration;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.locks.LockSupport;

/**
 * Prints what the clients of one process believe they hold, while servers fail over: {@code Beliefs
 * PORT KEYS KEY CLIENTS TTL_MS HOLD_MS}.
 *
 * <p>Each client is a thread. It takes one of so many locks, KEY0, KEY1, …, has it renewed for so
 * long, releases it, and begins again until the process is ended. Printed is a line for each hold,
 * {@code LOCK TOKEN FENCE FROM_US UNTIL_US}, by the machine's monotonic clock. UNTIL is when it was
 * last seen not to be lost. {@code start} goes to stderr.
 */
public final class Beliefs {
    private Beliefs() {}

    /** Runs it until the process is ended. */
    public static void main(String[] words) {
        String url = "redis://127.0.0.1:" + words[0];
        int keys = Integer.parseInt(words[1]);
        String key = words[2];
        Duration ttl = Duration.ofMillis(Long.parseLong(words[4]));
        long holdUs = 1000 * Long.parseLong(words[5]);
        RedisLockClient client =
                RedisLockClient.connect(url, LockOptions.defaults().withTtl(ttl));
        Runnable live = () -> {
            while (true) {
                String name = key + ThreadLocalRandom.current().nextInt(keys);
                try {
                    use(client.lock(name).acquire(), holdUs);
                } catch (RuntimeException | InterruptedException error) {
                    System.err.println(error);
                    LockSupport.parkNanos(50_000_000);
                }
            }
        };
        System.err.println("start");
        for (int n = 0; n < Integer.parseInt(words[3]); n++) {
            new Thread(live).start();
        }
    }

    private static void use(RedisHold hold, long holdUs) {
        long begun = nowUs();
        long until = begun;
        while (true) {
            // The hold is looked at after the clock, so that it was held at that time.
            long now = nowUs();
            if (now >= begun + holdUs || !hold.isHeld()) {
                break;
            }
            until = now;
            LockSupport.parkNanos(5_000_000);
        }
        System.out.printf("%s %s %d %d %d%n", hold.name(), hold.id(), hold.fence(), begun, until);
        hold.release();
    }

    /** On Linux that is CLOCK_MONOTONIC. */
    private static long nowUs() {
        return System.nanoTime() / 1000;
    }
}
