"""Numbers for Prometheus: kept as plain numbers where they arise, and put into words at a scrape."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from magnetar_wire.process.histogram import Histogram

__all__ = ["MetricFamilies", "format_exposition"]


class MetricFamilies:
    """Makes families whose names begin alike."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def counter(self, name: str, text: str, value: float | None = None, labels: Sequence[str] = ()) -> Metric:
        """With labels it has no value yet: `add_metric` of it."""
        return CounterMetricFamily(self._prefix + name, text, value=value, labels=labels or None)

    def gauge(self, name: str, text: str, value: float | None = None, labels: Sequence[str] = ()) -> Metric:
        return GaugeMetricFamily(self._prefix + name, text, value=value, labels=labels or None)

    def histogram(self, name: str, text: str, histogram: Histogram) -> Metric:
        buckets, below = [], 0
        for bound, count in zip(histogram.bounds, histogram.counts, strict=False):
            below += count
            buckets.append((str(bound), float(below)))
        buckets.append(("+Inf", float(histogram.count)))
        return HistogramMetricFamily(self._prefix + name, text, buckets=buckets, sum_value=histogram.total)


class _Collected(Collector):
    def __init__(self, families: Sequence[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        yield from self._families


def format_exposition(families: Sequence[Metric]) -> bytes:
    """These, and the process' own: memory, processor time, open files. What is in them is not looked at elsewhere any
    more, so this may run in a thread."""
    registry = CollectorRegistry()
    registry.register(_Collected(families))
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    return generate_latest(registry)
