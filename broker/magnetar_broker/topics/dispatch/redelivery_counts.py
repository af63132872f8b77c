"""How often entries were delivered before, where all of them go to one consumer, in order.

Every delivery then begins anew behind the cursor's mark-delete position and gets to some place. An entry was delivered
once for each of these places that it is before, so the places are all that is kept:

    delivered up to (excluded)        1:5      1:9      1:20
    how often what is before it was    3        2         1        so 1:7 was delivered twice

Acknowledged ones in between were delivered less often; nobody asks for them again.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Final

from magnetar_broker.managed_ledger.position import Position

__all__ = ["RedeliveryCounts"]

# One more place is made at most with each redelivery, and goes when the mark-delete position passes it. Where that
# never moves, entries in the middle get the number of those behind them, which is a little too low; the first ones keep
# theirs.
_MOST: Final = 256


class RedeliveryCounts:
    __slots__ = ("_counts", "_ends")

    def __init__(self) -> None:
        # Ascending, each once; and how often what stands before it, and not before the one before, was delivered.
        self._ends: list[Position] = []
        self._counts: list[int] = []

    def __bool__(self) -> bool:
        """Something is to come again."""
        return bool(self._ends)

    def count(self, position: Position) -> int:
        if not self._ends:
            return 0
        at = bisect_right(self._ends, position)
        return self._counts[at] if at < len(self._ends) else 0

    def delivered_up_to(self, end: Position) -> None:
        """Everything before it, that is, and it is to come again."""
        at = bisect_left(self._ends, end)
        if at == len(self._ends) or self._ends[at] != end:
            self._counts.insert(at, self._counts[at] if at < len(self._counts) else 0)
            self._ends.insert(at, end)
        for earlier in range(at + 1):
            self._counts[earlier] += 1
        if len(self._ends) > _MOST:
            del self._ends[1], self._counts[1]

    def acknowledged_up_to(self, position: Position) -> None:
        """Nobody asks for that one any more, nor for those before it."""
        if not self._ends:
            return
        done = bisect_right(self._ends, position.next)
        del self._ends[:done], self._counts[:done]

    def clear(self) -> None:
        self._ends.clear()
        self._counts.clear()
