"""Exclusive and Failover: how often entries were delivered.

Each redelivery begins behind the cursor's mark-delete position and ends at some position. An entry was delivered once
for each end that is behind it, so only the ends are recorded:

    end of a delivery (excluded)       1:5      1:9      1:20
    deliveries of entries before it     3        2         1        so 1:7 was delivered twice

Acknowledged entries in between were delivered less often, and are not delivered again.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Final

from magnetar_broker.position import Position

__all__ = ["RedeliveryCounts"]

# A redelivery adds at most one end, which is removed when the mark-delete position passes it. If that never moves,
# entries in the middle get the count of those behind them, which is a little too low. The first ones keep theirs.
_MAX_ENDS: Final = 256


class RedeliveryCounts:
    __slots__ = ("_counts", "_ends")

    def __init__(self) -> None:
        # Ascending, without duplicates; and the deliveries of the entries from the end before to this one.
        self._ends: list[Position] = []
        self._counts: list[int] = []

    def __bool__(self) -> bool:
        """Whether entries are redelivered."""
        return bool(self._ends)

    def count(self, position: Position) -> int:
        if not self._ends:
            return 0
        at = bisect_right(self._ends, position)
        return self._counts[at] if at < len(self._ends) else 0

    def record_delivery(self, end: Position) -> None:
        """Record that all entries before `end` were delivered. They will be redelivered."""
        at = bisect_left(self._ends, end)
        if at == len(self._ends) or self._ends[at] != end:
            self._counts.insert(at, self._counts[at] if at < len(self._counts) else 0)
            self._ends.insert(at, end)
        for earlier in range(at + 1):
            self._counts[earlier] += 1
        if len(self._ends) > _MAX_ENDS:
            del self._ends[1], self._counts[1]

    def discard_up_to(self, position: Position) -> None:
        """Drop the counts of acknowledged entries, up to this one."""
        if not self._ends:
            return
        discarded = bisect_right(self._ends, position.next)
        del self._ends[:discarded], self._counts[:discarded]

    def clear(self) -> None:
        self._ends.clear()
        self._counts.clear()
