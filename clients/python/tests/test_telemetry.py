"""OpenTelemetry: spans and histograms of waits and holds, and a counter of losses."""

from typing import Any

import pytest

from redis_lock_client import Lock

from .server import PATIENCE

pytest.importorskip("opentelemetry.sdk")
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import Counter, Histogram, MeterProvider
from opentelemetry.sdk.metrics.export import AggregationTemporality, InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

DELTA: Any = dict.fromkeys([Counter, Histogram], AggregationTemporality.DELTA)
SPANS, METRICS = InMemorySpanExporter(), InMemoryMetricReader(DELTA)


@pytest.fixture(scope="module", autouse=True)
def providers():
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(SPANS))
    trace.set_tracer_provider(provider)
    metrics.set_meter_provider(MeterProvider([METRICS]))


def test_what_is_recorded(client):
    SPANS.clear()
    with Lock(client, "stock", timeout=30):
        assert not Lock(client, "stock", timeout=30, blocking=False).acquire()
    lost = Lock(client, "stock", timeout=3, raise_on_release_error=False)
    with lost, lost.keep_alive() as lease:
        client.delete("stock")
        assert lease.lost.wait(PATIENCE)
    told = [
        ("wait", {"granted": True}),
        ("wait", {"granted": False}),
        ("hold", {"lost": False}),
        ("wait", {"granted": True}),
        ("hold", {"lost": True}),
    ]
    assert [(span.name, dict(span.attributes or {})) for span in SPANS.get_finished_spans()] == [
        (f"redis_lock.{what}", {f"redis_lock.{name}": value for name, value in ({"name": "stock"} | more).items()})
        for what, more in told
    ]
    data = METRICS.get_metrics_data()
    assert data
    counts = {
        metric.name: sum(getattr(point, "count", getattr(point, "value", 0)) for point in metric.data.data_points)
        for metric in data.resource_metrics[0].scope_metrics[0].metrics
    }
    assert counts == {"redis_lock.losses": 1, "redis_lock.wait.duration": 3, "redis_lock.hold.duration": 2}
