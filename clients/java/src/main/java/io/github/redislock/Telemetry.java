package io.github.redislock;

import java.util.function.Consumer;

/** What is measured of waits and holds. Nothing, unless OpenTelemetry is on the class path. */
interface Telemetry {
    /** Begins a span, and gives what is told its outcome at its end, or an empty text for none. */
    default Consumer<String> begins(String span, Claim claim, long fence) {
        return outcome -> {};
    }

    /** A hold was lost. */
    default void lost() {}

    static Telemetry find() {
        return SyncClient.has("io.opentelemetry.api.GlobalOpenTelemetry")
                ? new OpenTelemetryTelemetry()
                : new Telemetry() {};
    }
}
