// Spans and metrics, by the in-memory exporters of OpenTelemetry.
import assert from "node:assert/strict";
import { after, it } from "node:test";
import { metrics, trace } from "@opentelemetry/api";
import * as sdkMetrics from "@opentelemetry/sdk-metrics";
import * as sdkTrace from "@opentelemetry/sdk-trace-base";
import { library, Server } from "./harness.js";

const spans = new sdkTrace.InMemorySpanExporter();
const exporter = new sdkMetrics.InMemoryMetricExporter(sdkMetrics.AggregationTemporality.CUMULATIVE);
const reader = new sdkMetrics.PeriodicExportingMetricReader({ exporter, exportIntervalMillis: 600_000 });
const spanProcessors = [new sdkTrace.SimpleSpanProcessor(spans)];
trace.setGlobalTracerProvider(new sdkTrace.BasicTracerProvider({ spanProcessors }));
metrics.setGlobalMeterProvider(new sdkMetrics.MeterProvider({ readers: [reader] }));
const { Redlock } = await import("redis-lock-client");

const server = await Server.start();
after(async () => (await reader.shutdown(), server.stop()));

it("a wait and a hold have a span and a histogram each, and losses are counted", async () => {
  const client = await library.connect(server.port);
  const redlock = new Redlock([client]);
  await redlock.using(["a"], 30_000, async () => {
    await assert.rejects(redlock.acquire(["a"], 5000, { retryCount: 0 }));
  });
  const lost = await redlock.acquire(["b"], 30_000);
  await server.admin.del("b");
  await assert.rejects(lost.release());
  library.end(client);
  const seen = spans.getFinishedSpans().map(({ name, attributes: a }) => {
    return [name, a["redis_lock.name"], a["redis_lock.granted"] ?? a["redis_lock.lost"]];
  });
  assert.deepEqual(seen, [
    ["redis_lock.wait", "a", true],
    ["redis_lock.wait", "a", false],
    ["redis_lock.hold", "a", false],
    ["redis_lock.wait", "b", true],
    ["redis_lock.hold", "b", true],
  ]);
  await reader.forceFlush();
  const found = exporter.getMetrics().at(-1).scopeMetrics[0].metrics;
  const sum = (points) => points.reduce((all, { value }) => all + (value.count ?? value), 0);
  const counts = Object.fromEntries(found.map((one) => [one.descriptor.name, sum(one.dataPoints)]));
  assert.deepEqual(counts, {
    "redis_lock.wait.duration": 3,
    "redis_lock.hold.duration": 2,
    "redis_lock.losses": 1,
  });
});
