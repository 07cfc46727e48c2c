package io.github.redislock;

import java.util.function.Consumer;

/** What is measured of waits and holds. Nothing, unless OpenTelemetry is on the class path. */
interface Telemetry {
    /** Begins a wait, and gives what is told its outcome. */
    default Consumer<String> waits(Claim claim) {
        return outcome -> {};
    }

    /** Begins a hold, and gives what is run at its end. */
    default Runnable holds(Claim claim, long fence) {
        return () -> {};
    }

    /** A hold was lost. */
    default void lost(Claim claim) {}

    static Telemetry find() {
        return SyncClient.has("io.opentelemetry.api.GlobalOpenTelemetry")
                ? new OpenTelemetryTelemetry()
                : new Telemetry() {};
    }
}
