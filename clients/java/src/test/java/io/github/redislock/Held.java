package io.github.redislock;

import java.time.Duration;
import java.util.function.*;

/** A hold of either kind of client, by calls that wait. */
record Held(
        String name,
        long fence,
        BooleanSupplier held,
        BooleanSupplier checks,
        Predicate<Duration> renews,
        Consumer<Duration> releases,
        BiFunction<String, Object[], Object> runs) {
    static Held of(RedisHold hold) {
        return hold == null
                ? null
                : new Held(
                        hold.name(),
                        hold.fence(),
                        hold::isHeld,
                        hold::check,
                        hold::renew,
                        hold::release,
                        hold::exec);
    }

    static Held of(AsyncHold hold) {
        return new Held(
                hold.name(),
                hold.fence(),
                hold::isHeld,
                () -> Other.result(hold.check()),
                ttl -> Other.result(hold.renew(ttl)),
                least -> {
                    if (!Other.result(hold.unlock(least))) {
                        throw new IllegalMonitorStateException("it was lost");
                    }
                },
                (command, words) -> Other.result(hold.exec(command, words)));
    }

    boolean isHeld() {
        return held.getAsBoolean();
    }

    boolean check() {
        return checks.getAsBoolean();
    }

    boolean renew(Duration ttl) {
        return renews.test(ttl);
    }

    void release() {
        releases.accept(Duration.ZERO);
    }

    Object exec(String command, Object... words) {
        return runs.apply(command, words);
    }
}
