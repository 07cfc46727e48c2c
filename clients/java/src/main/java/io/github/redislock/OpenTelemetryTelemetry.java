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

    private static Meter meter() {
        return GlobalOpenTelemetry.getMeter(SCOPE);
    }

    @Override
    public Consumer<String> begins(String name, Claim claim, long fence) {
        Span span = GlobalOpenTelemetry.getTracer(SCOPE)
                .spanBuilder(name)
                .setAttribute("redis_lock.key", claim.title())
                .startSpan();
        if (fence > 0) {
            span.setAttribute("redis_lock.fence", fence);
        }
        long startNanos = System.nanoTime();
        return outcome -> {
            Attributes attributes = outcome.isEmpty()
                    ? Attributes.empty()
                    : Attributes.of(AttributeKey.stringKey("outcome"), outcome);
            span.setAllAttributes(attributes).end();
            meter().histogramBuilder(name)
                    .setUnit("s")
                    .build()
                    .record((System.nanoTime() - startNanos) / 1e9, attributes);
        };
    }

    @Override
    public void lost() {
        meter().counterBuilder("redis_lock.lost").build().add(1);
    }
}
