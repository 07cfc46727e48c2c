package io.github.redislock;

import static org.junit.jupiter.api.Assertions.*;

import io.github.redislock.testing.Eventually;

import io.opentelemetry.sdk.metrics.data.MetricData;
import io.opentelemetry.sdk.testing.junit5.OpenTelemetryExtension;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.RegisterExtension;

import java.util.List;

/** What a program with OpenTelemetry's SDK sees. */
class TelemetryTest extends ServerTest {
    @RegisterExtension
    static final OpenTelemetryExtension SDK = OpenTelemetryExtension.create();

    @Test
    void waitsAndHoldsHaveSpansAndHistogramsAndLossesACounter() throws Exception {
        RedisLock lock = locks.lock("a");
        lock.lock();
        assertFalse(other.does(() -> lock.tryLock()));
        lock.unlock();
        lock.lock();
        server.ask("DEL", "a");
        awaitLost();
        Eventually.isTrue("all spans have ended", () -> SDK.getSpans().size() == 5);
        for (String name : List.of("redis_lock.wait", "redis_lock.hold")) {
            long spans = SDK.getSpans().stream().filter(each -> each.getName().equals(name)).count();
            assertEquals(name.endsWith("wait") ? 3 : 2, spans, name);
            long count = metric(name).getHistogramData().getPoints().stream()
                    .mapToLong(point -> point.getCount())
                    .sum();
            assertEquals(spans, count, name);
        }
        MetricData lost = metric("redis_lock.lost");
        assertEquals(1, lost.getLongSumData().getPoints().iterator().next().getValue());
    }

    private static MetricData metric(String name) {
        return SDK.getMetrics().stream()
                .filter(each -> each.getName().equals(name))
                .findFirst()
                .orElseThrow();
    }
}
