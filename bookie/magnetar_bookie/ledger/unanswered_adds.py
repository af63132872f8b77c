"""The adds that one bookie has not answered: how much memory they take, and which of them is overdue.

An add is unanswered from `put` until `answered`. In between it waits in line, and at `mark_sent` it leaves the process.

**Lag.** The bookie lags once its unanswered adds take more than `max_bytes`, and until they take at most half of that.
The gap keeps a writer that waits for the bookie from stopping and starting with each answer.

**The time-out** runs for the oldest add that was handed over: from its hand-over, or from the moment when the add
before it was answered, whichever is later. So the time in line does not count, and neither does the time that the
bookie needs for older adds: a slow disk that still answers is slow, and one that answers nothing is found. An add
whose answer is lost becomes the oldest, and is found too.

Work per add is a dict entry. Hand-overs are remembered per run of adds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence

from magnetar_wire.entry_memory import ENTRY_OVERHEAD_BYTES

__all__ = ["UnansweredAdds"]


class UnansweredAdds:
    __slots__ = ("_handed", "_max_bytes", "_oldest", "_sizes", "bytes", "lags", "oldest_since")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        # (ledger id, entry id) → memory of the record (magnetar_wire.entry_memory). `bytes` is their sum.
        self._sizes: dict[tuple[int, int], int] = {}
        self.bytes = 0
        self.lags = False
        # (ledger id, first entry, end): adds that left the process together, in the order of the hand-overs. Adds
        # behind the oldest may have been answered out of order.
        self._handed: deque[tuple[int, int, int]] = deque()
        # The oldest add: this entry of the first of these.
        self._oldest = 0
        # When the time-out of the oldest add began; meaningless while `has_sent_adds` is False.
        self.oldest_since = 0.0

    def __bool__(self) -> bool:
        return bool(self._sizes)

    @property
    def has_sent_adds(self) -> bool:
        """Whether the time-out runs."""
        return bool(self._handed)

    @property
    def ledger_ids(self) -> dict[int, None]:
        """The ledgers that have an unanswered add, as an ordered set."""
        return dict.fromkeys([ledger_id for ledger_id, _ in self._sizes])

    def put(self, ledger_id: int, first_entry_id: int, records: Sequence[bytes]) -> None:
        """New adds. One that is put again while it is unanswered counts once."""
        sizes = self._sizes
        added = 0
        for entry_id, record in enumerate(records, first_entry_id):
            key, size = (ledger_id, entry_id), len(record) + ENTRY_OVERHEAD_BYTES
            if key in sizes:
                added -= sizes[key]
            sizes[key] = size
            added += size
        self.bytes += added
        if self.bytes > self._max_bytes:
            self.lags = True

    def mark_sent(self, ledger_id: int, first_entry_id: int, end_entry_id: int, now: float) -> None:
        """These adds leave the process."""
        if not self._handed:
            self._oldest = first_entry_id
            self.oldest_since = now
        self._handed.append((ledger_id, first_entry_id, end_entry_id))

    def answered(self, ledger_id: int, first_entry_id: int, count: int, now: float) -> None:
        """The bookie answered these adds. An answer to what was never put changes nothing."""
        sizes, handed = self._sizes, self._handed
        end = first_entry_id + count
        entry_ids: Iterable[int] = range(first_entry_id, end)
        if count > len(sizes):  # never more work than there are unanswered adds, whatever the bookie claims
            entry_ids = [one for ledger, one in sizes if ledger == ledger_id and first_entry_id <= one < end]
        freed = 0
        for entry_id in entry_ids:
            freed += sizes.pop((ledger_id, entry_id), 0)
        self.bytes -= freed
        if handed and handed[0][0] == ledger_id and first_entry_id <= self._oldest < end:
            self._oldest = min(handed[0][2], end)
            self.oldest_since = now
            self.advance_oldest(now)
        if self.lags:
            self._check_lag()

    def drop(self, is_dropped: Callable[[int], bool], now: float) -> None:
        """Forgets the adds of the ledgers for which `is_dropped` is true: no answer to them is waited for."""
        for key in [key for key in self._sizes if is_dropped(key[0])]:
            self.bytes -= self._sizes.pop(key)
        self.advance_oldest(now)
        self._check_lag()

    def clear(self) -> None:
        self._sizes.clear()
        self._handed.clear()
        self.bytes = 0
        self.lags = False

    def advance_oldest(self, now: float) -> None:
        """Passes over the adds at the front that are unanswered no more."""
        handed, sizes = self._handed, self._sizes
        while handed:
            ledger_id, _, end = handed[0]
            while self._oldest < end:
                if (ledger_id, self._oldest) in sizes:
                    return
                self._oldest += 1
                self.oldest_since = now
            handed.popleft()
            if handed:
                self._oldest = handed[0][1]

    def _check_lag(self) -> None:
        if self.bytes <= self._max_bytes // 2:
            self.lags = False
