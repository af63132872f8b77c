"""Metrics in Prometheus' format. The parts count plain numbers, which become families at a scrape."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from magnetar_wire.process.histogram import Histogram

__all__ = ["MetricFamilies", "format_exposition"]


class MetricFamilies:
    """Creates families with a common prefix of their names."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def counter(self, name: str, text: str, value: float | None = None, labels: Sequence[str] = ()) -> Metric:
        """Create a counter. With labels it has no value yet: `add_metric` adds them."""
        return CounterMetricFamily(self._prefix + name, text, value=value, labels=labels or None)

    def gauge(self, name: str, text: str, value: float | None = None, labels: Sequence[str] = ()) -> Metric:
        """Create a gauge. With labels it has no value yet: `add_metric` adds them."""
        return GaugeMetricFamily(self._prefix + name, text, value=value, labels=labels or None)

    def histogram(self, name: str, text: str, histogram: Histogram) -> Metric:
        """Create a histogram."""
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
    """Format these families, and those of the process itself: memory, processor time, open files.

    It may run in a thread, because nothing else uses the families any more.
    """
    registry = CollectorRegistry()
    registry.register(_Collected(families))
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    return generate_latest(registry)
