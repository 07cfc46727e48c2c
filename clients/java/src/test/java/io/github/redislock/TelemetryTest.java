package io.github.redislock;

import static org.junit.jupiter.api.Assertions.*;

import io.github.redislock.testing.Eventually;

import io.opentelemetry.sdk.metrics.data.MetricData;
import io.opentelemetry.sdk.testing.junit5.OpenTelemetryExtension;
import io.opentelemetry.sdk.trace.data.SpanData;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.RegisterExtension;

import java.time.Duration;
import java.util.Map;
import java.util.stream.Collectors;

/** What a program with OpenTelemetry's SDK sees. */
class TelemetryTest extends ServerTest {
    @RegisterExtension
    static final OpenTelemetryExtension SDK = OpenTelemetryExtension.create();

    @Test
    void waitsAndHoldsHaveSpansAndHistogramsAndLossesACounter() throws Exception {
        // A busy machine does not end it.
        RedisLock lock = behind(options.withTtl(Duration.ofSeconds(20))).lock("a");
        lock.lock();
        assertFalse(other.does(() -> lock.tryLock()));
        lock.unlock();
        lock.lock();
        server.ask("DEL", "a");
        awaitLost();
        Eventually.isTrue("all spans have ended", () -> SDK.getSpans().size() == 5);
        Map<String, Long> spans = SDK.getSpans().stream()
                .collect(Collectors.groupingBy(SpanData::getName, Collectors.counting()));
        assertEquals(Map.of("redis_lock.wait", 3L, "redis_lock.hold", 2L), spans);
        Map<String, Long> measured = SDK.getMetrics().stream()
                .collect(Collectors.toMap(MetricData::getName, TelemetryTest::sum));
        assertEquals(
                Map.of("redis_lock.wait", 3L, "redis_lock.hold", 2L, "redis_lock.lost", 1L),
                measured);
    }

    private static long sum(MetricData metric) {
        return metric.getLongSumData().getPoints().stream().mapToLong(one -> one.getValue()).sum()
                + metric.getHistogramData().getPoints().stream()
                        .mapToLong(one -> one.getCount())
                        .sum();
    }
}
