"""The rules of compaction: which segments are compacted, in which portions, and when they are checked for damage."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Final

__all__ = ["CheckSchedule", "LiveRecord", "choose_segments", "split_portion"]

# Bounds of one group that compaction writes.
_MAX_MOVED_BYTES: Final = 4 << 20
MAX_MOVED_RECORDS: Final = 500
# Maximum number of segments that are deleted after one flush of the index.
_MAX_SEGMENTS: Final = 16

# Ledger id, entry id, location: segment, offset, size.
LiveRecord = tuple[int, int, tuple[int, int, int]]


def choose_segments(
    usages: Iterable[tuple[int, int, int]],
    current: int,
    rewrite_below: float,
    damaged: Container[int],
    unreadable: Mapping[int, int],
) -> list[int]:
    """Return the next segments to compact, the one with the fewest live bytes first.

    `usages` has the number, live bytes and end of each segment. `current` is appended to. `damaged` ones are compacted
    regardless of their live bytes. `unreadable` ones were not compacted completely; they have live bytes at which they
    are tried again.
    """
    found = [
        (live_bytes, segment)
        for segment, live_bytes, end in usages
        if (live_bytes <= rewrite_below * end or segment in damaged)
        and segment < current
        and live_bytes <= unreadable.get(segment, live_bytes)
    ]
    return [segment for _, segment in sorted(found)[:_MAX_SEGMENTS]]


def split_portion(records: list[LiveRecord]) -> tuple[list[LiveRecord], list[LiveRecord]]:
    """Return the records of the next group, and the others."""
    size, count = 0, 0
    for _, _, location in records[:MAX_MOVED_RECORDS]:
        if count and size + location[2] > _MAX_MOVED_BYTES:
            break
        size += location[2]
        count += 1
    return records[:count], records[count:]


class CheckSchedule:
    """When each segment is checked for damage: one after the other, each once in an interval.

    That depends on the clock alone, so nothing has to be stored: if each process began with the first segment, the last
    would never be checked by processes that are restarted more often than once in an interval. A segment whose time
    passed while no process was running is checked in the next interval.
    """

    def __init__(self, interval_s: float, now_s: float) -> None:
        self._interval_s = interval_s
        self._until_s = now_s
        # No segment is due before this time if there are `_count` of them.
        self._next_s = now_s
        self._count = 0

    def list_due(self, now_s: float, count: int) -> list[int]:
        """Return which of `count` segments have become due since the last call, by their positions from 0."""
        if count == self._count and self._until_s < now_s < self._next_s:
            return []  # the usual case, after each sync
        before, self._until_s = self._until_s, now_s
        if not count or now_s <= before:
            self._next_s = now_s  # if the clock was set back, the former value may be far ahead
            return []
        first, last = (int(at / self._interval_s * count) for at in (before, now_s))
        self._count, self._next_s = count, (last + 1) * self._interval_s / count
        return [turn % count for turn in range(max(first, last - count) + 1, last + 1)]
