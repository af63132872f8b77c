"""A histogram of latencies with percentiles that are at most 1 % too high, in little memory.

The bounds of its buckets grow by 1 %, from a microsecond to a thousand seconds. A percentile is the upper bound of its
bucket, or the maximum if that is lower, so it is never too low.
"""

from __future__ import annotations

import math
from typing import Final

from magnetar_wire.process.histogram import Histogram

__all__ = ["PERCENTILES", "Latencies"]

PERCENTILES: Final = (50.0, 95.0, 99.0, 99.9)
_LOWEST_S: Final = 1e-6
_HIGHEST_S: Final = 1000.0
_STEP: Final = 1.01
_BOUNDS: Final = tuple(
    _LOWEST_S * _STEP**power for power in range(math.ceil(math.log(_HIGHEST_S / _LOWEST_S, _STEP)) + 1)
)


class Latencies:
    """Only one thread may call `observe`. All other methods can be called by any."""

    __slots__ = ("_histogram", "max_s")

    def __init__(self) -> None:
        self._histogram = Histogram(_BOUNDS)
        self.max_s = 0.0

    def observe(self, seconds: float, times: int = 1) -> None:
        self._histogram.observe(seconds, times)
        if seconds > self.max_s:
            self.max_s = seconds

    def add(self, other: Latencies) -> None:
        ours, theirs = self._histogram, other._histogram
        ours.counts = [mine + more for mine, more in zip(ours.counts, theirs.counts, strict=True)]
        ours.total += theirs.total
        self.max_s = max(self.max_s, other.max_s)

    @property
    def count(self) -> int:
        return self._histogram.count

    def percentile(self, percent: float) -> float | None:
        """Return seconds, or None if there are no latencies."""
        counts = self._histogram.counts
        count = sum(counts)
        if not count:
            return None
        rank, seen = max(1, math.ceil(count * percent / 100)), 0
        for at, in_bucket in enumerate(counts):
            seen += in_bucket
            if seen >= rank:
                return min(_BOUNDS[at], self.max_s) if at < len(_BOUNDS) else self.max_s
        return self.max_s
