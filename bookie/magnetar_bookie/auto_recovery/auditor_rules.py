"""Decisions of the auditor on one ledger: which bookies must be replaced, and when its entries are checked.

**Repair tasks.** A ledger is underreplicated if it names a lost bookie where repair may replace it: in any fragment of
a closed ledger, in all but the last fragment of another ledger. In the last fragment of an open ledger, a bookie counts
only when it has been lost for the grace period. Until then the writer replaces it, and must not be fenced.

**Checks.** A closed ledger is compared with its bookies' inventories when it was closed, when its metadata has changed,
and when `interval_s` has passed since the last check that found every entry. So the auditor finds entries that an ack
quorum has and another bookie lacks. A check reads everything that the bookies hold of a ledger, so `due_ledgers`
returns few at a time, those that were never checked first. A check that could not be completed is repeated after
`retry_s`, behind the others.

The schedule has one small record for each closed ledger, in memory. A new auditor starts with an empty one, and checks
all ledgers again, at the same rate.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass

from magnetar_bookie.auto_recovery.lost_bookies import LostBookies
from magnetar_bookie.core.ledger_metadata import LedgerMetadata

__all__ = ["CheckSchedule", "bookies_to_replace"]


def bookies_to_replace(metadata: LedgerMetadata, lost: LostBookies, now: float, grace_s: float) -> list[str]:
    """Return the lost bookies that make the ledger underreplicated."""
    found: dict[str, None] = {}
    for index, fragment in enumerate(metadata.fragments):
        growing = metadata.last_entry_of(index) is None
        for bookie_id in fragment.bookies:
            if lost.is_lost_for(bookie_id, now, grace_s if growing else 0.0):
                found[bookie_id] = None
    return list(found)


@dataclass(slots=True)
class _Check:
    # The metadata's version in the last check that found every entry, and when that was. -1: there is none.
    version: int = -1
    complete_at: float = 0.0
    # The metadata's version in the last scan.
    current_version: int = -1
    # When a check that could not be completed may be repeated.
    retry_at: float = 0.0


class CheckSchedule:
    """When each closed ledger is checked."""

    def __init__(self, interval_s: float, retry_s: float) -> None:
        self._interval_s = interval_s
        self._retry_s = retry_s
        self._checks: dict[int, _Check] = {}
        # A heap of (when it is due, ledger id). Each ledger's current time is in it, and outdated ones may be.
        self._queue: list[tuple[float, int]] = []

    def add_ledger(self, ledger_id: int, version: int) -> None:
        """Add a closed ledger, or the new version of its metadata."""
        check = self._checks.setdefault(ledger_id, _Check())
        if check.current_version != version:
            check.current_version = version
            self._enqueue(ledger_id, check)

    def retain_only(self, ledger_ids: Iterable[int]) -> None:
        """Remove all other ledgers."""
        self._checks = {one: self._checks[one] for one in ledger_ids if one in self._checks}

    def record_complete(self, ledger_id: int, version: int, now: float) -> None:
        """Record that a check found every entry."""
        check = self._checks.get(ledger_id)
        if check is not None:
            check.version, check.complete_at, check.retry_at = version, now, 0.0
            self._enqueue(ledger_id, check)

    def record_incomplete(self, ledger_id: int, now: float) -> None:
        """Record that a check found entries missing, or that not all bookies answered."""
        check = self._checks.get(ledger_id)
        if check is not None:
            check.version, check.retry_at = -1, now + self._retry_s
            self._enqueue(ledger_id, check)

    def due_ledgers(self, now: float, limit: int) -> list[int]:
        """Return at most `limit` ledgers, the longest overdue first. They stay due until a result is recorded."""
        found: list[tuple[float, int]] = []
        while len(found) < limit and (due_at := self.next_due()) is not None and due_at <= now:
            first = heapq.heappop(self._queue)
            if first not in found:
                found.append(first)
        for one in found:
            heapq.heappush(self._queue, one)
        return [ledger_id for _, ledger_id in found]

    def next_due(self) -> float | None:
        """Return when the next check is due, or None if there are no ledgers."""
        while self._queue:
            due_at, ledger_id = self._queue[0]
            check = self._checks.get(ledger_id)
            if check is not None and self._due_at(check) == due_at:
                return due_at
            heapq.heappop(self._queue)
        return None

    def _enqueue(self, ledger_id: int, check: _Check) -> None:
        heapq.heappush(self._queue, (self._due_at(check), ledger_id))

    def _due_at(self, check: _Check) -> float:
        if check.version == check.current_version:
            return check.complete_at + self._interval_s
        return check.retry_at
