"""OpenTelemetry, where its API package is installed: spans and histograms of waits and holds, and a counter of losses.

Without the package, or without a provider that the application has set, nothing is recorded.
"""

import time
from typing import Any

try:
    from opentelemetry import metrics, trace
except ImportError:
    trace = metrics = None  # type: ignore[assignment]

NAME = "redis_lock_client"

if trace:
    # Proxies, which find the providers that the application sets later.
    _tracer = trace.get_tracer(NAME)
    _meter = metrics.get_meter(NAME)
    _waits = _meter.create_histogram("redis_lock.wait.duration", "s", "How long acquires waited")
    _holds = _meter.create_histogram("redis_lock.hold.duration", "s", "How long locks were held")
    _losses = _meter.create_counter("redis_lock.losses", "{hold}", "Holds that were lost")


# A wait, or a hold.
class Span:
    # Begin.
    def __init__(self, what: str, name: Any) -> None:
        self._what = what
        self._start = time.monotonic()
        self._attributes = {"redis_lock.name": name.decode(errors="replace") if isinstance(name, bytes) else str(name)}
        self._span = _tracer.start_span(f"redis_lock.{what}", attributes=self._attributes) if trace else None

    # End, once: a wait with what it has granted, a hold with whether it is lost.
    def end(self, granted: bool = False, is_lost: bool = False, error: BaseException | None = None) -> None:
        if self._span is None:
            return
        span, self._span = self._span, None
        seconds = time.monotonic() - self._start
        if self._what == "wait":
            span.set_attribute("redis_lock.granted", granted)
            _waits.record(seconds, {**self._attributes, "redis_lock.granted": granted})
        else:
            span.set_attribute("redis_lock.lost", is_lost)
            _holds.record(seconds, self._attributes)
        if is_lost:
            _losses.add(1, self._attributes)
        if error is not None:
            span.record_exception(error)
        span.end()
