"""When which log file is looked at for rot in its heads and tables: each once in an interval, one after the other.

The clock alone says whose turn it is, so that nothing need be kept for the next process: one that always began anew
would never come to the last, where processes end more often than the interval. What nobody looked at while there was
no process is passed over until next time.
"""

from __future__ import annotations

__all__ = ["CheckSchedule"]


class CheckSchedule:
    def __init__(self, interval_s: float, now_s: float) -> None:
        self._interval_s = interval_s
        self._until_s = now_s
        # Nobody's turn comes before, where there are so many.
        self._next_s = now_s
        self._count = 0

    def due(self, now_s: float, count: int) -> list[int]:
        """Whose turn came since it was asked last, of so many: their places, from 0."""
        if count == self._count and self._until_s < now_s < self._next_s:
            return []  # as it is asked after each sync
        before, self._until_s = self._until_s, now_s
        if not count or now_s <= before:
            self._next_s = now_s  # where the clock has fallen, what was next may be far away
            return []
        first, last = (int(at / self._interval_s * count) for at in (before, now_s))
        self._count, self._next_s = count, (last + 1) * self._interval_s / count
        return [turn % count for turn in range(max(first, last - count) + 1, last + 1)]
