"""Which broker gets a bundle that nobody has: the least loaded.

What brokers report of themselves is seconds old, and noisy: one that has half a core to spare is as good as any other,
whatever it did in the last seconds. Among those the number of bundles decides, so that the bundles of a young cluster,
where nobody has anything to do yet, are spread evenly. Above that the load does, in tenths.

Whoever deals out many bundles at once would give all of them to one broker, whose report says nothing of them yet. So
what it has dealt out since that report is added to it.

    A reports 20 % and 3 bundles, B 45 % and 2, C 90 % and none. B gets the next one, A or B the one after it, C none
    until the others are above 90 %.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

__all__ = ["Candidate", "RecentChoices", "by_load"]

_TO_SPARE: Final = 0.5
_STEP: Final = 0.1
# More is no worse.
_MOST: Final = 1.5
# A loop that runs so late does as badly as one that is never idle.
_OVERLOADED_LAG_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Candidate:
    broker_id: str
    # Whenever it reports anew, this is another.
    report: tuple[int, bytes]
    # Of one core; and how late its loop was.
    cpu: float
    loop_lag_s: float
    bundles: int

    @property
    def load(self) -> int:
        """In steps; 0: it has plenty to spare."""
        busiest = max(_within(self.cpu), _within(self.loop_lag_s / _OVERLOADED_LAG_S))
        return 0 if busiest < _TO_SPARE else round(busiest / _STEP)


def _within(load: float) -> float:
    """What is no number is as much as can be."""
    return min(load, _MOST) if load >= 0.0 else _MOST if load != load else 0.0


class RecentChoices:
    """What was dealt out, by broker, since it reported what it reports now."""

    def __init__(self) -> None:
        self._chosen: dict[str, tuple[tuple[int, bytes], int]] = {}

    def count(self, one: Candidate) -> None:
        self._chosen[one.broker_id] = one.report, self.of(one) + 1

    def of(self, one: Candidate) -> int:
        report, count = self._chosen.get(one.broker_id, (one.report, 0))
        return count if report == one.report else 0

    def forget_all_but(self, broker_ids: Sequence[str]) -> None:
        self._chosen = {one: self._chosen[one] for one in broker_ids if one in self._chosen}


def by_load(candidates: Sequence[Candidate], recent: RecentChoices) -> list[Candidate]:
    """The best one first. Ties go by name, so that brokers that deal out at once agree."""
    return sorted(candidates, key=lambda one: (one.load, one.bundles + recent.of(one), one.broker_id))
