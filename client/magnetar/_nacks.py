"""What was acknowledged negatively, until it is asked for again.

Each entry has its time; times are rounded up to a tenth of the shortest delay, so that what was refused at about the
same time is asked for together, and one timer does for a consumer. A second refusal of an entry that waits already, or
that was asked for again since it was delivered, is the same refusal: redelivery is by entry, and another one would
bring back what the application is busy with.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from typing import Final, Generic, Protocol, TypeVar

from magnetar.exceptions import InvalidConfiguration

__all__ = ["FixedDelay", "MultiplierRedeliveryBackoff", "Nacks", "RedeliveryBackoff"]

Owner = TypeVar("Owner", bound=Hashable)

# Entries that are asked for together, at least.
_SHORTEST_TICK_S: Final = 0.001
_LONGEST_TICK_S: Final = 1.0


class RedeliveryBackoff(Protocol):
    """How long a refused message waits before it comes again."""

    # The shortest that it ever is.
    min_delay_ms: float

    def next(self, redelivery_count: int) -> float:
        """In ms, for a message that was delivered again so often."""


class MultiplierRedeliveryBackoff:
    """Longer each time: 1 s, 2 s, 4 s … 60 s by default."""

    def __init__(self, min_delay_ms: float = 1_000, max_delay_ms: float = 60_000, multiplier: float = 2.0) -> None:
        if not (0 <= min_delay_ms <= max_delay_ms and multiplier >= 1):
            raise InvalidConfiguration(
                f"a redelivery backoff needs 0 <= min_delay_ms <= max_delay_ms and a multiplier of at least 1, "
                f"not {min_delay_ms=}, {max_delay_ms=}, {multiplier=}"
            )
        self.min_delay_ms = min_delay_ms
        self.max_delay_ms = max_delay_ms
        self.multiplier = multiplier

    def next(self, redelivery_count: int) -> float:
        try:
            return min(self.min_delay_ms * self.multiplier ** max(redelivery_count, 0), self.max_delay_ms)
        except OverflowError:
            return self.max_delay_ms


class FixedDelay:
    """Always the same."""

    def __init__(self, delay_ms: float) -> None:
        self.min_delay_ms = delay_ms

    def next(self, redelivery_count: int) -> float:
        return self.min_delay_ms


class Nacks(Generic[Owner]):
    """On the I/O loop. Of all topics and partitions of one consumer: whose an entry is, `owner` says."""

    def __init__(self, shortest_delay_s: float) -> None:
        self._tick_s = min(max(shortest_delay_s / 10, _SHORTEST_TICK_S), _LONGEST_TICK_S)
        # Tick → what is due then. `_ticks` is its keys, soonest first, and may have some that are gone.
        self._due: dict[int, dict[Owner, dict[tuple[int, int], None]]] = {}
        self._ticks: list[int] = []
        # Owner → what waits.
        self._waiting: dict[Owner, dict[tuple[int, int], None]] = {}

    def add(self, owner: Owner, place: tuple[int, int], due_s: float) -> None:
        waiting = self._waiting.setdefault(owner, {})
        if place in waiting:
            return
        waiting[place] = None
        tick = -int(-due_s // self._tick_s)
        if tick not in self._due:
            self._due[tick] = {}
            heapq.heappush(self._ticks, tick)
        self._due[tick].setdefault(owner, {})[place] = None

    def forget(self, owner: Owner) -> None:
        """All that the owner has comes again anyway."""
        self._waiting.pop(owner, None)
        for places in self._due.values():
            places.pop(owner, None)

    def next_due_s(self) -> float | None:
        while self._ticks and not self._due.get(self._ticks[0]):
            self._due.pop(heapq.heappop(self._ticks), None)
        return self._ticks[0] * self._tick_s if self._ticks else None

    def take(self, now_s: float) -> dict[Owner, list[tuple[int, int]]]:
        """What is due, by owner, each entry once, in order."""
        taken: dict[Owner, dict[tuple[int, int], None]] = {}
        while self._ticks and self._ticks[0] * self._tick_s <= now_s:
            for owner, places in self._due.pop(heapq.heappop(self._ticks), {}).items():
                taken.setdefault(owner, {}).update(places)
                waiting = self._waiting.get(owner, {})
                for place in places:
                    waiting.pop(place, None)
                if not waiting:
                    self._waiting.pop(owner, None)
        return {owner: sorted(places) for owner, places in taken.items()}
