"""OpenTelemetry, where its API package is installed: spans and histograms of waits and holds, and a counter of losses.

Without the package, or without a provider that the application has set, nothing is recorded.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
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
    granted = False

    # Begin.
    def __init__(self, what: str, name: Any) -> None:
        self._what = what
        self._start = time.monotonic()
        self._attributes = {"redis_lock.name": name.decode(errors="replace") if isinstance(name, bytes) else str(name)}
        self._span = _tracer.start_span(f"redis_lock.{what}", attributes=self._attributes) if trace else None

    # End, once.
    def end(self, is_lost: bool = False, error: BaseException | None = None) -> None:
        if self._span is None:
            return
        span, self._span = self._span, None
        seconds = time.monotonic() - self._start
        if self._what == "wait":
            span.set_attribute("redis_lock.granted", self.granted)
            _waits.record(seconds, {**self._attributes, "redis_lock.granted": self.granted})
        else:
            span.set_attribute("redis_lock.lost", is_lost)
            _holds.record(seconds, self._attributes)
            if is_lost:
                _losses.add(1, self._attributes)
        if error is not None:
            span.record_exception(error)
        span.end()


# See a wait. Whether it was granted is said meanwhile.
@contextmanager
def wait(name: Any) -> Iterator[Span]:
    span = Span("wait", name)
    try:
        yield span
    except BaseException as error:
        span.end(error=error)
        raise
    span.end()


# Begin to see a hold.
def hold(name: Any) -> Span | None:
    return Span("hold", name) if trace else None
