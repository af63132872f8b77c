"""Reads records: looks up their locations in the index, and reads adjacent ones of a segment with one system call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from magnetar_bookie.storage.interface import DAMAGED, Damaged
from magnetar_bookie.storage.rocksdb.index import Index, Location
from magnetar_bookie.storage.rocksdb.segments import Segments

__all__ = ["read_records"]

# Records of at least this size are read one by one: a joint read saves a call, but copies them a second time.
_LARGE_BYTES: Final = 16 << 10
# Maximum size of a joint read.
_MAX_RUN_BYTES: Final = 1 << 20
# Maximum number of bytes between two records of a joint read.
_MAX_GAP_BYTES: Final = 4 << 10
# How often a record may be moved by compaction while it is read.
_MAX_ATTEMPTS: Final = 10

_Record = bytes | Damaged | None


def read_records(
    index: Index, segments: Segments, ledger_id: int, entry_ids: Sequence[int], max_bytes: int
) -> list[_Record]:
    """See `LedgerStorage.read`. Runs in a thread. Raises `StorageFailed` and `OSError`."""
    locations = _limit_bytes(index.locate(ledger_id, entry_ids), max_bytes)
    records: list[_Record] = [None] * len(locations)
    moved = _read_located(segments, range(len(locations)), locations, records)
    for _ in range(_MAX_ATTEMPTS):
        if not moved:
            return records
        # The segment was deleted: the records were moved by compaction, or dropped.
        located = index.locate(ledger_id, [entry_ids[number] for number in moved])
        retried = []
        for number, location in zip(moved, located, strict=True):
            if location is not None and location == locations[number]:
                records[number] = DAMAGED
            elif location is not None:
                locations[number] = location
                retried.append(number)
        moved = _read_located(segments, retried, locations, records)
    for number in moved:
        records[number] = DAMAGED
    return records


def _limit_bytes(locations: list[Location | None], max_bytes: int) -> list[Location | None]:
    """Return the locations up to the one that exceeds the bytes, included."""
    for number, location in enumerate(locations):
        if location is not None:
            max_bytes -= location[2]
            if max_bytes < 0:
                return locations[: number + 1]
    return locations


def _read_located(
    segments: Segments, numbers: Sequence[int], locations: Sequence[Location | None], records: list[_Record]
) -> list[int]:
    """Read the records with these numbers. Return the numbers of those whose segment was deleted."""
    moved: list[int] = []
    run: list[int] = []  # the records of the next joint read
    run_segment, next_offset, limit = -1, 0, 0
    pending_records = segments.pending_records
    for number in numbers:
        location = locations[number]
        if location is None:
            continue
        segment, offset, size = location
        if pending_records:
            record = pending_records.get((segment, offset))
            if record is not None:
                records[number] = record
                continue
        end = offset + size
        is_adjacent = segment == run_segment and next_offset <= offset <= next_offset + _MAX_GAP_BYTES
        if not is_adjacent or end > limit or size >= _LARGE_BYTES:
            moved += _read_run(segments, run, locations, records)
            run, run_segment, limit = [], segment, offset + _MAX_RUN_BYTES
        run.append(number)
        next_offset = end
    return moved + _read_run(segments, run, locations, records)


def _read_run(
    segments: Segments, run: list[int], locations: Sequence[Location | None], records: list[_Record]
) -> list[int]:
    located = [location for number in run if (location := locations[number])]
    if not located:
        return []
    segment, begin, _ = located[0]
    _, last, last_size = located[-1]
    size = last + last_size - begin
    try:
        data = segments.read(segment, begin, size)
    except FileNotFoundError:
        return run
    if len(run) == 1:
        records[run[0]] = data if len(data) == size else DAMAGED
    elif len(data) == size:
        for number, (_, offset, record_size) in zip(run, located, strict=True):
            start = offset - begin
            records[number] = data[start : start + record_size]
    else:  # one by one: records after an unreadable sector may be valid
        return [number for one in run for number in _read_run(segments, [one], locations, records)]
    return []
