"""Which entries are chunks of messages that are not acknowledged, so that one id stands for a whole message. No I/O.

To acknowledge a message is to acknowledge all of its chunks. An id that an application has stored names the last one
only, so the others are looked up here (`remove_message`).

A *cumulative* acknowledgement covers the messages up to one in the order in which they were handed out, which is that
of their last chunks. Chunks of a later message may lie before it:

    a0 b0 a1 c b1      a, c and b are handed out in this order. To acknowledge all up to c must not acknowledge b0

Then it becomes a cumulative acknowledgement of all in front of b0, and single ones of a1 and c (`split_cumulative`).
Chunks of dropped messages are never covered: they are redelivered, possibly after an acknowledgement of a message that
was handed out before. The ranges of entries that were delivered are remembered as long as there
are such chunks.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Final, NamedTuple

from magnetar._prefetching.chunk_assembly import Position

__all__ = ["EntryRun", "UnackedChunks"]

# Complete messages, and chunks of dropped ones, that are remembered. A broker delivers no more than 50,000 entries that
# are not acknowledged, by default.
_MAX_REMEMBERED: Final = 50_000


class EntryRun(NamedTuple):
    """Entries of one ledger, both ends included."""

    ledger_id: int
    first: int
    last: int


class UnackedChunks:
    """The chunks of one topic or partition. Used on the I/O loop only."""

    def __init__(self) -> None:
        # Returns the positions of the chunks of each incomplete message.
        self.find_incomplete: Callable[[], Iterable[Sequence[Position]]] = tuple
        # Complete messages by the positions of their last chunks.
        self._complete: dict[Position, tuple[Position, ...]] = {}
        # Those between whose chunks other entries may lie.
        self._mixed: dict[Position, tuple[Position, ...]] = {}
        self._dropped: dict[Position, None] = {}
        # The first chunks of incomplete messages that the application has acknowledged, as they were handed out before.
        self._settled: set[Position] = set()
        # What was delivered since a chunk was added while there was none, in order and disjoint; and the last entry
        # that was delivered before.
        self._delivered: list[EntryRun] = []
        self._before: Position | None = None

    def add_message(self, positions: tuple[Position, ...]) -> None:
        """Add a complete message, which the application has not acknowledged."""
        first, last = positions[0], positions[-1]
        self._complete[last] = positions
        if first[0] != last[0] or last[1] - first[1] != len(positions) - 1:
            self._mixed[last] = positions
        if len(self._complete) > _MAX_REMEMBERED:
            oldest = next(iter(self._complete))
            del self._complete[oldest]
            self._mixed.pop(oldest, None)

    def add_dropped(self, positions: Iterable[Position]) -> None:
        self._dropped.update(dict.fromkeys(positions))
        while len(self._dropped) > _MAX_REMEMBERED:
            del self._dropped[next(iter(self._dropped))]

    def add_delivered(self, run: EntryRun) -> None:
        """Add entries that were delivered, after their chunks were added."""
        if self._mixed or self._dropped or any(self.find_incomplete()):
            self._insert_run(run)
            return
        if self._delivered:
            self._delivered.clear()
        self._before = (run.ledger_id, run.last)

    def _insert_run(self, run: EntryRun) -> None:
        """Insert a run, and merge it with those that it overlaps or touches."""
        delivered = self._delivered
        begin = bisect_left(delivered, (run.ledger_id, run.first - 1), key=lambda one: (one.ledger_id, one.last))
        end = bisect_right(delivered, (run.ledger_id, run.last + 1), key=itemgetter(0, 1))
        if begin < end:
            run = EntryRun(
                run.ledger_id, min(run.first, delivered[begin].first), max(run.last, delivered[end - 1].last)
            )
        delivered[begin:end] = [run]

    def remove_message(self, position: Position) -> Sequence[Position]:
        """Return the chunks of the message with this last chunk, which is acknowledged; of another entry, itself."""
        positions = self._complete.pop(position, None)
        if positions is None:
            return (position,)
        self._mixed.pop(position, None)
        self.remove_dropped(positions)
        self._settled.add(positions[0])
        self._settled.intersection_update(incomplete[0] for incomplete in self.find_incomplete())
        return positions

    def split_cumulative(self, position: Position) -> tuple[Position | None, list[EntryRun]] | None:
        """Split the acknowledgement of all entries up to this one, so that no chunk of a later message is acknowledged.

        Return the entry up to which all are acknowledged (None: there is none), and the runs of entries to acknowledge
        besides. None: no such chunk lies before it, so it is sent as it is.
        """
        for last in [last for last in self._complete if last <= position]:
            self.remove_message(last)
        chunks = {chunk for positions in self._mixed.values() for chunk in positions if chunk <= position}
        for positions in self.find_incomplete():
            if positions[0] not in self._settled:
                chunks.update(chunk for chunk in positions if chunk <= position)
        chunks.update(chunk for chunk in self._dropped if chunk <= position)
        if not chunks:
            return None
        first = min(chunks)
        return self._find_before(first), list(self._find_runs_between(first, position, chunks))

    def _find_before(self, first: Position) -> Position | None:
        """Return the last entry before `first` that was delivered."""
        found = [self._before] if self._before is not None and self._before < first else []
        for ledger_id, run_first, run_last in self._delivered:
            if (ledger_id, run_first) < first:
                found.append((ledger_id, run_last if ledger_id < first[0] else min(run_last, first[1] - 1)))
        return max(found, default=None)

    def _find_runs_between(self, first: Position, end: Position, chunks: set[Position]) -> Iterator[EntryRun]:
        """Yield the entries that were delivered after `first` and up to `end`, without these chunks."""
        for ledger_id, run_first, run_last in self._delivered:
            begin = max(run_first, first[1] + 1) if ledger_id == first[0] else run_first
            last = min(run_last, end[1]) if ledger_id == end[0] else run_last
            if not first[0] <= ledger_id <= end[0] or begin > last:
                continue
            for _, chunk in sorted(chunk for chunk in chunks if chunk[0] == ledger_id and begin <= chunk[1] <= last):
                if begin < chunk:
                    yield EntryRun(ledger_id, begin, chunk - 1)
                begin = chunk + 1
            if begin <= last:
                yield EntryRun(ledger_id, begin, last)

    def remove_dropped(self, positions: Iterable[Position]) -> None:
        """Remove chunks that are delivered again, or acknowledged."""
        for position in positions:
            self._dropped.pop(position, None)

    def drop_incomplete(self) -> None:
        """Incomplete messages are dropped, and will be redelivered."""
        for positions in self.find_incomplete():
            self.add_dropped(positions)

    def clear(self) -> None:
        """Forget everything: what was delivered before can't be acknowledged any more."""
        self._complete.clear()
        self._mixed.clear()
        self._dropped.clear()
        self._settled.clear()
        self._delivered.clear()
        self._before = None
