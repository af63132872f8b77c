"""What a group of changes does to the index, the same when it is written as when it is read from the log again.

Besides where records lie it keeps account of what is in use: how many bytes of each segment are of records that are
still there, and how many of them are of which ledger. So a ledger that is dropped frees what it uses without looking at
its entries, and a segment of which nothing is in use can go.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from magnetar_bookie.storage.rocksdb.group_format import GroupTable, encode_ledger
from magnetar_bookie.storage.rocksdb.index import (
    Index,
    IndexBatch,
    entry_key,
    ledger_key,
    pack_location,
    pack_use,
    use_key,
)

__all__ = ["LoggedGroup", "SegmentUsage", "SegmentUse", "apply_groups"]

# A range that is deleted counts like so many keys: each is looked at in all later reads until it is flushed.
_RANGE_KEYS: Final = 200


@dataclass(slots=True)
class SegmentUse:
    # Bytes of records that are still there.
    used: int
    # Where its last group ends.
    end: int


class SegmentUsage:
    """What is in use of each segment: here what the index holds, for one that is open."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self.segments = {segment: SegmentUse(used, end) for segment, used, end in index.uses()}
        # Of the segment that was written last: what each ledger uses of it, as far as it was looked up.
        self._newest = 0
        self._in_newest: dict[int, int] = {}

    def of_ledger(self, ledger_id: int, segment: int) -> int:
        if segment != self._newest:
            return self._looked_up(ledger_id, segment)
        used = self._in_newest.get(ledger_id)
        return self._looked_up(ledger_id, segment) if used is None else used

    def keep(self, ledger_id: int, segment: int, used: int) -> None:
        if segment > self._newest:
            self._newest = segment
            self._in_newest.clear()
        if segment == self._newest:
            self._in_newest[ledger_id] = used

    def forget(self, ledger_id: int) -> None:
        self._in_newest.pop(ledger_id, None)

    def _looked_up(self, ledger_id: int, segment: int) -> int:
        return int.from_bytes(self._index.get(use_key(ledger_id, segment)) or b"", "big")


@dataclass(slots=True)  # frozen, it would take 0.4 µs more to make
class LoggedGroup:
    """A group without the bytes of its records, and where it stands in the log."""

    table: GroupTable
    number: int
    segment: int
    # Its first record.
    records_at: int
    end: int
    # Its records were in the log already, elsewhere.
    moves: bool = False

    @property
    def only_adds(self) -> bool:
        """Nothing in the index goes: such groups can be put into it together."""
        return not (self.moves or self.table.dropped or self.table.discarded)


def apply_groups(index: Index, usage: SegmentUsage, groups: Sequence[LoggedGroup]) -> int:
    """Puts groups that follow each other into the index: one, or several that only add. Returns how much it is for the
    index."""
    batch = IndexBatch()
    # (ledger, segment) → the bytes that it uses more than before.
    more: dict[tuple[int, int], int] = {}
    dropped: dict[int, None] = {}
    touched = {group.segment: None for group in groups}
    if not groups[0].only_adds:
        (group,) = groups
        dropped = dict.fromkeys(group.table.dropped)
        _take_away(index, usage, batch, group, dropped, more, touched)
    put = batch.put
    for group in groups:
        segment, at = group.segment, group.records_at
        ledger, added = -1, 0
        for ledger_id, entry_id, size in group.table.records:
            if ledger_id != ledger:
                if added:
                    more[ledger, segment] = more.get((ledger, segment), 0) + added
                ledger, added = ledger_id, 0
            put(entry_key(ledger_id, entry_id), pack_location(segment, at, size))
            at += size
            added += size
        if added:
            more[ledger, segment] = more.get((ledger, segment), 0) + added
        use = usage.segments.setdefault(segment, SegmentUse(0, 0))
        use.end = max(use.end, group.end)
    for (ledger_id, in_segment), bytes_more in more.items():
        before = 0 if ledger_id in dropped else usage.of_ledger(ledger_id, in_segment)
        used = before + bytes_more
        if used:
            put(use_key(ledger_id, in_segment), used.to_bytes(8, "big"))
        else:
            batch.delete(use_key(ledger_id, in_segment))
        usage.keep(ledger_id, in_segment, used)
        usage.segments.setdefault(in_segment, SegmentUse(0, 0)).used += bytes_more
        touched[in_segment] = None
    for one in touched:
        put(*pack_use(one, usage.segments[one].used, usage.segments[one].end))
    for group in groups:
        for ledger_id, remembered in group.table.ledgers.items():
            put(ledger_key(b"l", ledger_id), encode_ledger(remembered))
        if group.table.bookie is not None:
            batch.put_bookie(group.table.bookie)
    last = groups[-1]
    batch.put_known(last.number, last.segment, last.end)
    changed = len(batch.batch) + _RANGE_KEYS * len(dropped)
    index.write(batch.batch)
    return changed


def _take_away(
    index: Index,
    usage: SegmentUsage,
    batch: IndexBatch,
    group: LoggedGroup,
    dropped: dict[int, None],
    more: dict[tuple[int, int], int],
    touched: dict[int, None],
) -> None:
    """Ledgers that go, records that go, and where records were that move."""
    for ledger_id in dropped:
        for old_segment, used in index.uses_of(ledger_id):
            usage.segments.setdefault(old_segment, SegmentUse(0, 0)).used -= used
            touched[old_segment] = None
        batch.drop_ledger(ledger_id)
        usage.forget(ledger_id)
    gone = [key for key in group.table.discarded if key[0] not in dropped]
    if group.moves:
        gone += [(ledger_id, entry_id) for ledger_id, entry_id, _ in group.table.records]
    if gone:
        gone = list(dict.fromkeys(gone))
        keys = [entry_key(*key) for key in gone]
        for (ledger_id, _), key, location in zip(gone, keys, index.locate_each(keys), strict=True):
            if location is not None:
                batch.delete(key)
                more[ledger_id, location[0]] = more.get((ledger_id, location[0]), 0) - location[2]
