"""Records from the log, in a thread: where they are, and then the files, neighbours with one call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from magnetar_bookie.storage.interface import DAMAGED, Damaged
from magnetar_bookie.storage.rocksdb.index import Index, Location
from magnetar_bookie.storage.rocksdb.segments import Segments

__all__ = ["read_records"]

# Records of at least so many bytes are read by themselves: what a call saves is less than copying them once more.
_LARGE: Final = 16 << 10
# One call reads at most so much.
_RUN_BYTES: Final = 1 << 20
# How many bytes of others may lie between two neighbours.
_GAP: Final = 4 << 10
# How often a record may move while it is looked for.
_ATTEMPTS: Final = 10

Found = bytes | Damaged | None


def read_records(
    index: Index, segments: Segments, ledger_id: int, entry_ids: Sequence[int], max_bytes: int
) -> list[Found]:
    """See `LedgerStorage.read`. Raises `StorageFailed` and `OSError`."""
    wanted = _up_to(index.locate(ledger_id, entry_ids), max_bytes)
    found: list[Found] = [None] * len(wanted)
    moved = _read(segments, list(enumerate(wanted)), found)
    for _ in range(_ATTEMPTS):
        if not moved:
            return found
        # Its segment is gone: it was written anew elsewhere, or dropped.
        located = index.locate(ledger_id, [entry_ids[place] for place in moved])
        again = []
        for place, location in zip(moved, located, strict=True):
            if location is not None and location == wanted[place]:
                found[place] = DAMAGED
            elif location is not None:
                wanted[place] = location
                again.append((place, location))
        moved = _read(segments, again, found)
    for place in moved:
        found[place] = DAMAGED
    return found


def _up_to(locations: list[Location | None], max_bytes: int) -> list[Location | None]:
    for place, location in enumerate(locations):
        if location is not None:
            max_bytes -= location[2]
            if max_bytes < 0:
                return locations[: place + 1]
    return locations


def _read(segments: Segments, wanted: Sequence[tuple[int, Location | None]], found: list[Found]) -> list[int]:
    """Returns the places of those whose segment there is no more."""
    moved: list[int] = []
    run: list[tuple[int, Location]] = []
    begin = end = segment = -1
    for place, location in wanted:
        if location is None:
            continue
        in_line = segments.in_line(location[0], location[1])
        if in_line is not None:
            found[place] = in_line
            continue
        in_segment, offset, size = location
        if run and (
            in_segment != segment
            or not end <= offset <= end + _GAP
            or offset + size - begin > _RUN_BYTES
            or size >= _LARGE
        ):
            moved += _read_run(segments, run, found)
            run = []
        if not run:
            begin, segment = offset, in_segment
        run.append((place, location))
        end = offset + size
    if run:
        moved += _read_run(segments, run, found)
    return moved


def _read_run(segments: Segments, run: list[tuple[int, Location]], found: list[Found]) -> list[int]:
    segment, begin, _ = run[0][1]
    _, last, last_size = run[-1][1]
    try:
        data = segments.read(segment, begin, last + last_size - begin)
    except FileNotFoundError:
        return [place for place, _ in run]
    if len(run) == 1:
        found[run[0][0]] = data if len(data) == last_size else DAMAGED
        return []
    for place, (_, offset, size) in run:
        record = data[offset - begin : offset - begin + size]
        found[place] = record if len(record) == size else DAMAGED
    return []

