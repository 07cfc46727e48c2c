package io.github.redislock;

import io.opentelemetry.api.GlobalOpenTelemetry;
import io.opentelemetry.api.common.AttributeKey;
import io.opentelemetry.api.common.Attributes;
import io.opentelemetry.api.metrics.Meter;
import io.opentelemetry.api.trace.Span;

import java.util.function.Consumer;

/**
 * Spans and histograms of waits and holds, and a counter of losses, by the program's SDK. That may
 * be set until the first lock is asked for, and gives the same instrument for the same name.
 */
final class OpenTelemetryTelemetry implements Telemetry {
    private static final String SCOPE = "io.github.redislock";
    private static final AttributeKey<String> OUTCOME = AttributeKey.stringKey("outcome");

    private static Meter meter() {
        return GlobalOpenTelemetry.getMeter(SCOPE);
    }

    private static Span begin(String name, Claim claim) {
        return GlobalOpenTelemetry.getTracer(SCOPE)
                .spanBuilder(name)
                .setAttribute("redis_lock.key", claim.title())
                .startSpan();
    }

    private static void end(String name, Span span, long startNanos, Attributes attributes) {
        span.end();
        meter().histogramBuilder(name)
                .setUnit("s")
                .build()
                .record((System.nanoTime() - startNanos) / 1e9, attributes);
    }

    @Override
    public Consumer<String> waits(Claim claim) {
        Span span = begin("redis_lock.wait", claim);
        long startNanos = System.nanoTime();
        return outcome -> {
            span.setAttribute(OUTCOME, outcome);
            end("redis_lock.wait", span, startNanos, Attributes.of(OUTCOME, outcome));
        };
    }

    @Override
    public Runnable holds(Claim claim, long fence) {
        Span span = begin("redis_lock.hold", claim).setAttribute("redis_lock.fence", fence);
        long startNanos = System.nanoTime();
        return () -> end("redis_lock.hold", span, startNanos, Attributes.empty());
    }

    @Override
    public void lost(Claim claim) {
        meter().counterBuilder("redis_lock.lost").build().add(1);
    }
}
