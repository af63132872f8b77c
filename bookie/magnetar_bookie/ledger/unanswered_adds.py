"""Rules of unanswered adds: how much memory those of one bookie take, and when the oldest one times out.

An add is unanswered from `add_records` until `mark_answered`. It is queued in this process until `mark_sent`.

**Lag.** The bookie lags once its unanswered adds take more than `max_bytes`, and until they take at most half of that.
The gap keeps a writer that waits for the bookie from stopping and starting with each answer.

**The timeout** applies to the oldest sent add. It runs from when that add was sent, or from the answer to the add
before it, whichever is later. So neither the time in the queue counts nor the time that the bookie needs for older
adds: a slow disk that still answers is only slow, and a bookie that answers nothing is detected. An add whose answer is
lost becomes the oldest, and is detected, too.

Each add takes one dict entry. Sent adds are recorded as ranges.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence

from magnetar_wire.entry_memory import ENTRY_OVERHEAD_BYTES

__all__ = ["UnansweredAdds"]


class UnansweredAdds:
    """The adds that one bookie has not answered."""

    __slots__ = ("_max_bytes", "_oldest", "_sent", "_sizes", "bytes", "is_lagging", "oldest_since")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        # (ledger id, entry id) → memory of the record (magnetar_wire.entry_memory). `bytes` is their sum.
        self._sizes: dict[tuple[int, int], int] = {}
        self.bytes = 0
        self.is_lagging = False
        # (ledger id, first entry, end): ranges of adds in the order in which they were sent. Adds after the oldest may
        # have been answered out of order.
        self._sent: deque[tuple[int, int, int]] = deque()
        # The oldest add: this entry of the first range.
        self._oldest = 0
        # When the timeout of the oldest add began. Meaningless while `has_sent_adds` is False.
        self.oldest_since = 0.0

    def __bool__(self) -> bool:
        return bool(self._sizes)

    @property
    def has_sent_adds(self) -> bool:
        """Whether the timeout runs."""
        return bool(self._sent)

    @property
    def ledger_ids(self) -> dict[int, None]:
        """The ledgers with an unanswered add, as an ordered set."""
        return dict.fromkeys([ledger_id for ledger_id, _ in self._sizes])

    def add_records(self, ledger_id: int, first_entry_id: int, records: Sequence[bytes]) -> None:
        """Add consecutive entries. One that is unanswered already counts once."""
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
            self.is_lagging = True

    def mark_sent(self, ledger_id: int, first_entry_id: int, end_entry_id: int, now: float) -> None:
        """Note that these adds are sent to the bookie now."""
        if not self._sent:
            self._oldest = first_entry_id
            self.oldest_since = now
        self._sent.append((ledger_id, first_entry_id, end_entry_id))

    def mark_answered(self, ledger_id: int, first_entry_id: int, count: int, now: float) -> None:
        """Remove adds that the bookie answered. Entries that are not unanswered are ignored."""
        sizes, sent = self._sizes, self._sent
        end = first_entry_id + count
        entry_ids: Iterable[int] = range(first_entry_id, end)
        if count > len(sizes):  # a wrong count must not cost more work than there are unanswered adds
            entry_ids = [one for ledger, one in sizes if ledger == ledger_id and first_entry_id <= one < end]
        freed = 0
        for entry_id in entry_ids:
            freed += sizes.pop((ledger_id, entry_id), 0)
        self.bytes -= freed
        if sent and sent[0][0] == ledger_id and first_entry_id <= self._oldest < end:
            self._oldest = min(sent[0][2], end)
            self.oldest_since = now
            self.find_oldest(now)
        if self.is_lagging:
            self._check_lag()

    def drop_ledgers(self, is_dropped: Callable[[int], bool], now: float) -> None:
        """Remove the adds of the ledgers for which `is_dropped` returns True."""
        for key in [key for key in self._sizes if is_dropped(key[0])]:
            self.bytes -= self._sizes.pop(key)
        self.find_oldest(now)
        self._check_lag()

    def clear(self) -> None:
        """Remove all adds."""
        self._sizes.clear()
        self._sent.clear()
        self.bytes = 0
        self.is_lagging = False

    def find_oldest(self, now: float) -> None:
        """Skip sent adds that are answered, up to the oldest one that is not."""
        sent, sizes = self._sent, self._sizes
        while sent:
            ledger_id, _, end = sent[0]
            while self._oldest < end:
                if (ledger_id, self._oldest) in sizes:
                    return
                self._oldest += 1
                self.oldest_since = now
            sent.popleft()
            if sent:
                self._oldest = sent[0][1]

    def _check_lag(self) -> None:
        if self.bytes <= self._max_bytes // 2:
            self.is_lagging = False
