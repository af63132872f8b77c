"""Finds the live data of a segment: what has to be written again before the segment can be deleted.

That is what its groups have, as far as it is still valid: records whose location in the index is there, data of
ledgers, and the bookie's own record. If the header or table of a group is damaged, its contents are unknown. Then the
live records are found through the index, and the data of all ledgers is written again.
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

__all__ = ["LiveData", "find_live_data", "is_segment_damaged"]

_log = logging.getLogger(__name__)

# Maximum number of keys that one step reads from the index.
_MAX_KEYS: Final = 10_000
# All groups count as acknowledged: the checksums of their records are not checked.
_ALL_ACKNOWLEDGED: Final = 2**64


@dataclass(slots=True)
class LiveData:
    # Ledger id, entry id, location.
    records: list[tuple[int, int, Location]] = field(default_factory=list)
    ledgers: dict[int, None] = field(default_factory=dict)
    has_bookie_record: bool = False


def find_live_data(index: Index, segments: Segments, segment: int) -> LiveData:
    """Find the live data of a segment. Runs in a thread."""
    try:
        return _find_in_log(index, segments, segment)
    except FileNotFoundError:
        # Its records are lost, but the index has everything else.
        return LiveData([], _list_ledgers(index), has_bookie_record=True)
    except (BadGroup, OSError) as error:
        if not _is_damage(error):
            raise
        _log.error("%s: %s: the index is used to find its entries", segment_path(segments.folder, segment), error)
    return LiveData(_find_in_index(index, segment), _list_ledgers(index), has_bookie_record=True)


def is_segment_damaged(segments: Segments, segment: int) -> bool:
    """Return whether a header or table of a segment is damaged. Runs in a thread."""
    try:
        for _ in scan_segment(segments.folder, segment, 0, _ALL_ACKNOWLEDGED):
            pass
    except FileNotFoundError:
        return False  # compaction deleted it
    except (BadGroup, OSError) as error:
        if not _is_damage(error):
            raise
        _log.error("%s: %s", segment_path(segments.folder, segment), error)
        return True
    return False


def _is_damage(error: Exception) -> bool:
    return not isinstance(error, OSError) or error.errno == errno.EIO


def _find_in_log(index: Index, segments: Segments, segment: int) -> LiveData:
    live = LiveData()
    for group in scan_segment(segments.folder, segment, 0, _ALL_ACKNOWLEDGED):
        at = group.records_at
        records: list[tuple[int, int, Location]] = []
        for ledger_id, entry_id, size in group.table.records:
            records.append((ledger_id, entry_id, (segment, at, size)))
            at += size
        if records:
            located = index.locate_keys([entry_key(ledger_id, entry_id) for ledger_id, entry_id, _ in records])
            live.records += [record for record, now in zip(records, located, strict=True) if now == record[2]]
        live.ledgers.update(dict.fromkeys(group.table.ledgers))
        live.has_bookie_record = live.has_bookie_record or group.table.bookie is not None
    return live


def _find_in_index(index: Index, segment: int) -> list[tuple[int, int, Location]]:
    """Return the live records of a segment, in the order of their locations."""
    found: list[tuple[int, int, Location]] = []
    for ledger_id in index.find_ledgers_in_segment(segment, _MAX_KEYS):
        first = 0
        while entry_ids := index.list_entry_ids(ledger_id, first, 2**64 - 1, _MAX_KEYS):
            located = index.locate_keys([entry_key(ledger_id, entry_id) for entry_id in entry_ids])
            found += [
                (ledger_id, entry_id, location)
                for entry_id, location in zip(entry_ids, located, strict=True)
                if location is not None and location[0] == segment
            ]
            first = entry_ids[-1] + 1
            if first == 2**64:
                break
    return sorted(found, key=lambda one: one[2])


def _list_ledgers(index: Index) -> dict[int, None]:
    found: dict[int, None] = {}
    first = 0
    while ledger_ids := index.list_ledger_ids(first, _MAX_KEYS):
        found.update(dict.fromkeys(ledger_ids))
        first = ledger_ids[-1] + 1
    return found
