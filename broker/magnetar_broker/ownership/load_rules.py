"""Rules about load: which broker gets a bundle that has no owner, and when a broker reports its load.

**The least loaded broker.** Load reports are seconds old, and noisy, so all brokers with half a core to spare count as
equal. Among those the number of bundles decides: so the bundles of a young cluster, whose brokers are all idle, are
spread evenly. Above half a core, the load decides in steps of a tenth.

A broker that assigns many bundles at once would give all of them to one broker, whose report does not count them yet.
So the bundles that it has assigned since that report are added.

    A reports 20 % and 3 bundles, B 45 % and 2, C 90 % and none. B gets the next bundle, A or B the one after it, and C
    none until the others are above 90 %.

**Reports.** A report changes a node that other brokers read. A broker reports at once when its number of bundles
changed, which decides among idle brokers; when its load has changed notably; and else at long intervals.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

__all__ = ["Candidate", "LoadReportRule", "RecentAssignments", "ReportedLoad", "order_by_load"]

_TO_SPARE: Final = 0.5
_STEP: Final = 0.1
# A higher load counts as this.
_MAX_LOAD: Final = 1.5
# A loop with this delay counts as one that is never idle.
_OVERLOADED_LAG_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Candidate:
    broker_id: str
    # Identifies the broker's last report.
    report: tuple[int, bytes]
    # The part of one core that the broker uses, and the delay of its event loop.
    cpu: float
    loop_lag_s: float
    bundles: int

    @property
    def load(self) -> int:
        """The load in steps; 0: the broker has at least half a core to spare."""
        busiest = max(_bounded(self.cpu), _bounded(self.loop_lag_s / _OVERLOADED_LAG_S))
        return 0 if busiest < _TO_SPARE else round(busiest / _STEP)


def _bounded(load: float) -> float:
    """Return the load within its limits. NaN counts as the maximum."""
    return min(load, _MAX_LOAD) if load >= 0.0 else _MAX_LOAD if load != load else 0.0


class RecentAssignments:
    """The number of bundles that this broker has assigned to each broker since the last report of that one."""

    def __init__(self) -> None:
        self._counts: dict[str, tuple[tuple[int, bytes], int]] = {}

    def add(self, one: Candidate) -> None:
        self._counts[one.broker_id] = one.report, self.count(one) + 1

    def count(self, one: Candidate) -> int:
        report, count = self._counts.get(one.broker_id, (one.report, 0))
        return count if report == one.report else 0

    def forget_others(self, broker_ids: Sequence[str]) -> None:
        """Forget all brokers but these."""
        self._counts = {one: self._counts[one] for one in broker_ids if one in self._counts}


def order_by_load(candidates: Sequence[Candidate], recent: RecentAssignments) -> list[Candidate]:
    """Return the candidates, the least loaded first. Ties are ordered by name, so that brokers that assign at the same
    time agree."""
    return sorted(candidates, key=lambda one: (one.load, one.bundles + recent.count(one), one.broker_id))


@dataclass(frozen=True, slots=True)
class ReportedLoad:
    """The numbers of a load report that decide whether another one is due."""

    cpu: float
    loop_lag_s: float
    bundles: int


@dataclass(frozen=True, slots=True)
class LoadReportRule:
    # Minimal change, as a part of one core, and of a second's delay of the loop.
    threshold: float
    min_interval_s: float
    max_interval_s: float

    def is_due(self, reported: ReportedLoad, now: ReportedLoad, since_report_s: float) -> bool:
        if now.bundles != reported.bundles or since_report_s >= self.max_interval_s:
            return True
        if since_report_s < self.min_interval_s:
            return False
        cpu_change, lag_change = abs(now.cpu - reported.cpu), abs(now.loop_lag_s - reported.loop_lag_s)
        return cpu_change >= self.threshold or lag_change >= self.threshold
