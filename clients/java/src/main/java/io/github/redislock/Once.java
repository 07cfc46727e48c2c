package io.github.redislock;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.concurrent.ThreadLocalRandom;
import java.util.function.Function;
import java.util.function.Supplier;
import java.util.regex.Pattern;

/**
 * How {@link RedisLockClient#once} and {@link LettuceLockClient#once} share a value that one client
 * makes. Start from {@link #text()}, {@link #bytes()} or {@link #of}.
 *
 * <p>A maker is renewed while it works. If its process dies, the next client in the queue makes the
 * value after the client's {@link LockOptions#ttl}. So a value is made at least once.
 *
 * @param <T> what the value is
 * @param keep how long the value lives
 * @param early is asked at each call from how long before its end the value is made again. One
 *     client does that, and the others use the old value until then. Half of {@code keep} at most
 *     counts
 * @param patience how long a caller waits for another client's value
 * @param pack makes bytes of a value
 * @param unpack makes a value of the bytes, also for the caller that has made it
 */
public record Once<T>(
        Duration keep,
        Supplier<Duration> early,
        Duration patience,
        Function<? super T, byte[]> pack,
        Function<byte[], ? extends T> unpack) {
    /** A name up to the end of its hash tag, by which a cluster finds the slot. */
    private static final Pattern TAGGED = Pattern.compile("[^{]*\\{[^}]+\\}");

    /**
     * Checks what was chosen.
     *
     * @param keep at least a millisecond
     * @param early gives zero for never
     * @param patience with zero or less it does not wait
     * @param pack not null
     * @param unpack not null
     */
    public Once {
        Lease.ms(keep);
    }

    /**
     * The key of the lock under which a value is made. To delete it and the value, in this order or
     * at once, keeps a maker that began before from storing what it makes.
     *
     * @param name the value's key
     * @return a key in the same slot of a cluster
     */
    public static String lock(String name) {
        return (TAGGED.matcher(name).lookingAt() ? name : "{" + name + "}") + ":once";
    }

    /**
     * A value of any kind: kept for 60 s, made again from 10 s before its end on, a wait of 5 s.
     *
     * @param <T> what the value is
     * @param pack makes bytes of it
     * @param unpack makes it of bytes
     * @return these
     */
    public static <T> Once<T> of(
            Function<? super T, byte[]> pack, Function<byte[], ? extends T> unpack) {
        Duration early = Duration.ofSeconds(10);
        return new Once<>(
                Duration.ofSeconds(60), () -> early, Duration.ofSeconds(5), pack, unpack);
    }

    /**
     * The same for text in UTF-8.
     *
     * @return these
     */
    public static Once<String> text() {
        return of(
                text -> text.getBytes(StandardCharsets.UTF_8),
                bytes -> new String(bytes, StandardCharsets.UTF_8));
    }

    /**
     * The same for bytes.
     *
     * @return these
     */
    public static Once<byte[]> bytes() {
        return of(Function.identity(), Function.identity());
    }

    /**
     * Makes values again at random times before their end: the nearer it is, and the slower the
     * making, the likelier. So not all clients find a value early at one moment (Vattani,
     * Chierichetti and Lowenstein, 2015).
     *
     * @param delta how long the making takes
     * @param beta 1, or more to make it sooner
     * @return for {@link #withEarly(Supplier)}
     */
    public static Supplier<Duration> xfetch(Duration delta, double beta) {
        return () -> {
            double drawn = 1 - ThreadLocalRandom.current().nextDouble();
            return Duration.ofMillis((long) (-delta.toMillis() * beta * Math.log(drawn)));
        };
    }

    /**
     * With another life of the value.
     *
     * @param keep the new one
     * @return a copy
     */
    public Once<T> withKeep(Duration keep) {
        return new Once<>(keep, early, patience, pack, unpack);
    }

    /**
     * With another time from which it is made again.
     *
     * @param early before its end; zero for never
     * @return a copy
     */
    public Once<T> withEarly(Duration early) {
        return withEarly(() -> early);
    }

    /**
     * The same, chosen anew at each call.
     *
     * @param early such as {@link #xfetch}
     * @return a copy
     */
    public Once<T> withEarly(Supplier<Duration> early) {
        return new Once<>(keep, early, patience, pack, unpack);
    }

    /**
     * With another time to wait for the value of another client.
     *
     * @param patience the new one
     * @return a copy
     */
    public Once<T> withPatience(Duration patience) {
        return new Once<>(keep, early, patience, pack, unpack);
    }
}
