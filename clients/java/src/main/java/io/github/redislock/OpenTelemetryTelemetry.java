package io.github.redislock;

import io.opentelemetry.api.GlobalOpenTelemetry;
import io.opentelemetry.api.common.AttributeKey;
import io.opentelemetry.api.common.Attributes;
import io.opentelemetry.api.metrics.*;
import io.opentelemetry.api.trace.Span;
import io.opentelemetry.api.trace.Tracer;

import java.util.function.Consumer;

/** Spans and histograms of waits and holds, and a counter of losses, by the program's SDK. */
final class OpenTelemetryTelemetry implements Telemetry {
    private static final String SCOPE = "io.github.redislock";
    private static final AttributeKey<String> OUTCOME = AttributeKey.stringKey("outcome");

    /** Not before the first lock is asked for, because until then the program may set its SDK. */
    private record Instruments(
            Tracer tracer, DoubleHistogram waits, DoubleHistogram holds, LongCounter losses) {
        static Instruments make() {
            Meter meter = GlobalOpenTelemetry.getMeter(SCOPE);
            return new Instruments(
                    GlobalOpenTelemetry.getTracer(SCOPE),
                    meter.histogramBuilder("redis_lock.wait").setUnit("s").build(),
                    meter.histogramBuilder("redis_lock.hold").setUnit("s").build(),
                    meter.counterBuilder("redis_lock.lost").build());
        }
    }

    private Instruments instruments;

    private synchronized Instruments instruments() {
        instruments = instruments == null ? Instruments.make() : instruments;
        return instruments;
    }

    private Span begin(String name, Claim claim) {
        return instruments()
                .tracer()
                .spanBuilder(name)
                .setAttribute("redis_lock.key", claim.title())
                .startSpan();
    }

    @Override
    public Consumer<String> waits(Claim claim) {
        Span span = begin("redis_lock.wait", claim);
        long startNanos = System.nanoTime();
        return outcome -> {
            span.setAttribute(OUTCOME, outcome).end();
            instruments()
                    .waits()
                    .record(seconds(startNanos), Attributes.of(OUTCOME, outcome));
        };
    }

    @Override
    public Runnable holds(Claim claim, long fence) {
        Span span = begin("redis_lock.hold", claim).setAttribute("redis_lock.fence", fence);
        long startNanos = System.nanoTime();
        return () -> {
            span.end();
            instruments().holds().record(seconds(startNanos));
        };
    }

    private static double seconds(long startNanos) {
        return (System.nanoTime() - startNanos) / 1e9;
    }

    @Override
    public void lost(Claim claim) {
        instruments().losses().add(1);
    }
}
