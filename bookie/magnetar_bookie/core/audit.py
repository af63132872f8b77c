"""What the auditor concludes from a ledger's metadata: whether it needs a repairer, and whether it is to be checked.

**Tasks.** A ledger needs one if it names a lost bookie where repair may act: in any fragment of a closed ledger, in
any but the last of one that is not closed. The last fragment of such a ledger counts when its bookie has been lost for
the grace time: before that its writer replaces the bookie by itself, and nobody is to fence it.

**Checks.** A closed ledger's entries are held against its bookies' inventories when it was closed, when its metadata
has changed since, and when `interval_s` has passed since the last check that found everything. So entries that an ack
quorum has and one bookie lacks are found. A check reads all that a ledger holds; `due` gives a few at a time, those
never checked first. A check that could not be completed is tried again after `retry_s`, behind the others.

The memory is one small record for each closed ledger, and is forgotten with the term of office: a new auditor checks
everything anew, spread out like all else.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass

from magnetar_bookie.core.lost_bookies import LostBookies
from magnetar_bookie.ledger.ledger_metadata import LedgerMetadata

__all__ = ["CheckSchedule", "bookies_to_replace"]


def bookies_to_replace(metadata: LedgerMetadata, lost: LostBookies, now: float, grace_s: float) -> list[str]:
    """The lost bookies on whose account the ledger needs a repairer; none: it needs none."""
    found: dict[str, None] = {}
    for index, fragment in enumerate(metadata.fragments):
        growing = metadata.last_entry_of_fragment(index) is None
        for bookie_id in fragment.bookies:
            if lost.overdue(bookie_id, now, grace_s if growing else 0.0):
                found[bookie_id] = None
    return list(found)


@dataclass(slots=True)
class _Check:
    # The metadata's version that was found whole, and when; -1: none yet.
    version: int = -1
    whole_at: float = 0.0
    # What the metadata is at by the newest scan.
    current_version: int = -1
    # Not before: the last check could not be completed.
    not_before: float = 0.0


class CheckSchedule:
    """When each closed ledger is to be checked."""

    def __init__(self, interval_s: float, retry_s: float) -> None:
        self._interval_s = interval_s
        self._retry_s = retry_s
        self._checks: dict[int, _Check] = {}
        # (when it is due, ledger id), a heap. Each ledger's present time is in it, and perhaps some of the past.
        self._queue: list[tuple[float, int]] = []

    def scanned(self, ledger_id: int, version: int) -> None:
        """The ledger is closed, and its metadata at this version."""
        check = self._checks.setdefault(ledger_id, _Check())
        if check.current_version != version:
            check.current_version = version
            self._put_in_line(ledger_id, check)

    def forget_all_but(self, ledger_ids: Iterable[int]) -> None:
        self._checks = {one: self._checks[one] for one in ledger_ids if one in self._checks}

    def found_whole(self, ledger_id: int, version: int, now: float) -> None:
        check = self._checks.get(ledger_id)
        if check is not None:
            check.version, check.whole_at, check.not_before = version, now, 0.0
            self._put_in_line(ledger_id, check)

    def not_settled(self, ledger_id: int, now: float) -> None:
        """The check found something lacking, or could not ask everybody: it counts for nothing."""
        check = self._checks.get(ledger_id)
        if check is not None:
            check.version, check.not_before = -1, now + self._retry_s
            self._put_in_line(ledger_id, check)

    def due(self, now: float, limit: int) -> list[int]:
        """At most so many ledgers, the one that has waited longest first. They stay due until something is said."""
        found: list[tuple[float, int]] = []
        while len(found) < limit and (due_at := self.next_due()) is not None and due_at <= now:
            first = heapq.heappop(self._queue)
            if first not in found:
                found.append(first)
        for one in found:
            heapq.heappush(self._queue, one)
        return [ledger_id for _, ledger_id in found]

    def next_due(self) -> float | None:
        while self._queue:
            due_at, ledger_id = self._queue[0]
            check = self._checks.get(ledger_id)
            if check is not None and self._due_at(check) == due_at:
                return due_at
            heapq.heappop(self._queue)
        return None

    def _put_in_line(self, ledger_id: int, check: _Check) -> None:
        heapq.heappush(self._queue, (self._due_at(check), ledger_id))

    def _due_at(self, check: _Check) -> float:
        if check.version == check.current_version:
            return check.whole_at + self._interval_s
        return check.not_before
