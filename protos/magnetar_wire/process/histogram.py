"""Histograms of plain numbers, for Prometheus."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

__all__ = ["BYTES", "SECONDS", "Histogram"]

# Bounds for most sizes, 1 KiB … 64 MiB, and most durations.
BYTES: Final = tuple(float(1024 * 4**power) for power in range(9))
SECONDS: Final = (0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)


class Histogram:
    """The number of values up to each of the bounds, and above all of them."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        # For each bound, the number of values up to it and above the previous one; last, those above all bounds.
        self.counts = [0] * (len(self.bounds) + 1)
        self.total = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times

    @property
    def count(self) -> int:
        return sum(self.counts)
