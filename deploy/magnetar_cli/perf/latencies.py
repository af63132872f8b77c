"""How long things took, to a hundredth, in little room.

The bounds of the histogram are a hundredth apart, from a microsecond to a quarter of an hour. A percentile is told as
the upper bound of where it lies, and never above the greatest that was seen: what is told is at most 1 % too much, and
never too little.
"""

from __future__ import annotations

import math
from typing import Final

from magnetar_wire.process.histogram import Histogram

__all__ = ["PERCENTILES", "Latencies"]

PERCENTILES: Final = (50.0, 95.0, 99.0, 99.9)
_LEAST_S: Final = 1e-6
_MOST_S: Final = 1000.0
_STEP: Final = 1.01
_BOUNDS: Final = tuple(_LEAST_S * _STEP**power for power in range(math.ceil(math.log(_MOST_S / _LEAST_S, _STEP)) + 1))


class Latencies:
    """`observe` is called by one thread, and the rest by any."""

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
        """Seconds; None: there was nothing."""
        counts = self._histogram.counts
        count = sum(counts)
        if not count:
            return None
        rank, seen = max(1, math.ceil(count * percent / 100)), 0
        for at, here in enumerate(counts):
            seen += here
            if seen >= rank:
                return min(_BOUNDS[at], self.max_s) if at < len(_BOUNDS) else self.max_s
        return self.max_s
