"""What a segment holds that is still needed: what must be written again before the segment can go.

Its groups tell, as far as they can be read: records that the index has in that place, ledgers of which something is
remembered, and whether the bookie's own record was among it. Where one of them rotted, nobody knows what it told: then
the index says which records are in the segment, and all that is remembered of any ledger counts as told there.
"""

from __future__ import annotations

import errno
import logging
from dataclasses import dataclass, field
from typing import Final

from magnetar_bookie.storage.rocksdb.group_format import BadGroup
from magnetar_bookie.storage.rocksdb.index import Index, Location, entry_key
from magnetar_bookie.storage.rocksdb.replay import scan_segment
from magnetar_bookie.storage.rocksdb.segments import Segments, segment_path

__all__ = ["LiveData", "find_live_data", "is_damaged"]

_log = logging.getLogger(__name__)

# Of the index so much is looked at in one step.
_KEYS: Final = 10_000
# Acknowledged: the records' checksums are not looked at.
_ALL: Final = 2**64


@dataclass(slots=True)
class LiveData:
    # Ledger id, entry id, location.
    records: list[tuple[int, int, Location]] = field(default_factory=list)
    ledgers: dict[int, None] = field(default_factory=dict)
    bookie: bool = False


def find_live_data(index: Index, segments: Segments, segment: int) -> LiveData:
    """In a thread."""
    try:
        return _from_log(index, segments, segment)
    except FileNotFoundError:
        # Its records can't be moved. What else was in it can.
        return LiveData([], _all_ledgers(index), bookie=True)
    except (BadGroup, OSError) as error:
        if not _is_damage(error):
            raise
        _log.error("%s: %s: the index is used to find its entries", segment_path(segments.folder, segment), error)
    return LiveData(_records_in(index, segment), _all_ledgers(index), bookie=True)


def is_damaged(segments: Segments, segment: int) -> bool:
    """In a thread: whether a head or a table of it can't be read."""
    try:
        for _ in scan_segment(segments.folder, segment, 0, _ALL):
            pass
    except FileNotFoundError:
        return False  # it was freed meanwhile
    except (BadGroup, OSError) as error:
        if not _is_damage(error):
            raise
        _log.error("%s: %s", segment_path(segments.folder, segment), error)
        return True
    return False


def _is_damage(error: Exception) -> bool:
    return not isinstance(error, OSError) or error.errno == errno.EIO


def _from_log(index: Index, segments: Segments, segment: int) -> LiveData:
    in_use = LiveData()
    for group in scan_segment(segments.folder, segment, 0, _ALL):
        at = group.records_at
        places: list[tuple[int, int, Location]] = []
        for ledger_id, entry_id, size in group.table.records:
            places.append((ledger_id, entry_id, (segment, at, size)))
            at += size
        if places:
            located = index.locate_each([entry_key(ledger_id, entry_id) for ledger_id, entry_id, _ in places])
            in_use.records += [place for place, now in zip(places, located, strict=True) if now == place[2]]
        in_use.ledgers.update(dict.fromkeys(group.table.ledgers))
        in_use.bookie = in_use.bookie or group.table.bookie is not None
    return in_use


def _records_in(index: Index, segment: int) -> list[tuple[int, int, Location]]:
    """In the order in which they lie there."""
    found: list[tuple[int, int, Location]] = []
    for ledger_id in index.ledgers_in(segment, _KEYS):
        first = 0
        while entry_ids := index.entry_ids(ledger_id, first, 2**64 - 1, _KEYS):
            located = index.locate_each([entry_key(ledger_id, entry_id) for entry_id in entry_ids])
            found += [
                (ledger_id, entry_id, location)
                for entry_id, location in zip(entry_ids, located, strict=True)
                if location is not None and location[0] == segment
            ]
            first = entry_ids[-1] + 1
            if first == 2**64:
                break
    return sorted(found, key=lambda one: one[2])


def _all_ledgers(index: Index) -> dict[int, None]:
    found: dict[int, None] = {}
    first = 0
    while ledger_ids := index.ledger_ids(first, _KEYS):
        found.update(dict.fromkeys(ledger_ids))
        first = ledger_ids[-1] + 1
    return found
