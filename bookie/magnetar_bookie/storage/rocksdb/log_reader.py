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
    # Place, offset, end of what is read next with one call.
    run: list[tuple[int, int, int]] = []
    segment, next_at, limit = -1, 0, 0
    in_line = segments.in_line
    for place, location in wanted:
        if location is None:
            continue
        in_segment, offset, size = location
        if in_line:
            record = in_line.get((in_segment, offset))
            if record is not None:
                found[place] = record
                continue
        end = offset + size
        if in_segment != segment or not next_at <= offset <= next_at + _GAP or end > limit or size >= _LARGE:
            if run:
                moved += _read_run(segments, segment, run, found)
            run, segment, limit = [], in_segment, offset + _RUN_BYTES
        run.append((place, offset, end))
        next_at = end
    if run:
        moved += _read_run(segments, segment, run, found)
    return moved


def _read_run(segments: Segments, segment: int, run: list[tuple[int, int, int]], found: list[Found]) -> list[int]:
    begin, stop = run[0][1], run[-1][2]
    try:
        data = segments.read(segment, begin, stop - begin)
    except FileNotFoundError:
        return [place for place, _, _ in run]
    if len(run) == 1:
        found[run[0][0]] = data if len(data) == stop - begin else DAMAGED
    elif len(data) == stop - begin:
        for place, offset, end in run:
            found[place] = data[offset - begin : end - begin]
    else:  # each by itself: what lies behind what can't be read may be whole
        return [place for one in run for place in _read_run(segments, segment, [one], found)]
    return []
