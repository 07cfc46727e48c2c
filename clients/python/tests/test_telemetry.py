"""OpenTelemetry: spans and histograms of waits and holds, and a counter of losses."""

from typing import Any

import pytest
import redis

from redis_lock_client import Lock, LockNotOwnedError

from .server import PATIENCE, Server

pytest.importorskip("opentelemetry.sdk")
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

SPANS, METRICS = InMemorySpanExporter(), InMemoryMetricReader()


@pytest.fixture(scope="module", autouse=True)
def providers() -> None:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(SPANS))
    trace.set_tracer_provider(provider)
    metrics.set_meter_provider(MeterProvider([METRICS]))


def points() -> dict[str, Any]:
    data: Any = METRICS.get_metrics_data()
    if data is None:
        return {}
    found = data.resource_metrics[0].scope_metrics[0].metrics
    return {
        each.name: sum(getattr(p, "count", getattr(p, "value", 0)) for p in each.data.data_points) for each in found
    }


def test_what_is_recorded(server: Server, client: redis.Redis) -> None:
    SPANS.clear()
    with Lock(client, "stock", timeout=30):
        assert not Lock(client, "stock", timeout=30, blocking=False).acquire()
    lost = Lock(client, "stock", timeout=3)
    lost.acquire()
    with lost.keep_alive() as lease:
        client.delete("stock")
        assert lease.lost.wait(PATIENCE)
    lost.raise_on_release_error = False
    with pytest.raises(LockNotOwnedError):
        lost.release()
    spans = [(span.name, dict(span.attributes or {})) for span in SPANS.get_finished_spans()]
    stock = {"redis_lock.name": "stock"}
    assert spans == [
        ("redis_lock.wait", {**stock, "redis_lock.granted": True}),
        ("redis_lock.wait", {**stock, "redis_lock.granted": False}),
        ("redis_lock.hold", {**stock, "redis_lock.lost": False}),
        ("redis_lock.wait", {**stock, "redis_lock.granted": True}),
        ("redis_lock.hold", {**stock, "redis_lock.lost": True}),
    ]
    counts = points()
    assert counts["redis_lock.losses"] >= 1
    assert counts["redis_lock.wait.duration"] >= 3
    assert counts["redis_lock.hold.duration"] >= 2
