"""Reads the log group by group: `LogReplay` to index the groups that the index lacks, and single segments for checks.

A replay ends before the first group that is damaged or doesn't have the next number. A group whose header and table are
valid but whose records are not was cut off by a crash, if it may not have been acknowledged. If it was acknowledged, it
is replayed, and the damage is found when the record is read.

To rebuild the index, groups after a damaged one are needed, too (`salvage_segment`). The next group is found by the
damaged group's length, or by the next magic number with a valid checksum. Records have any bytes, and could look like a
group. So a group that was found by its magic number must have a number that fits its position, and the group after it
must have the next one.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from crc32c import crc32c

from magnetar_bookie.storage.rocksdb.group_format import (
    HEADER_BYTES,
    MAGIC_BYTES,
    MIN_GROUP_BYTES,
    BadGroup,
    GroupHeader,
    GroupTable,
    decode_group_header,
    decode_table,
)
from magnetar_bookie.storage.rocksdb.segments import list_segments, segment_path

__all__ = ["FoundGroup", "LogReplay", "salvage_segment", "scan_segment"]

_log = logging.getLogger(__name__)

# The search for the next group reads at most this many times the segment's bytes: records that are full of magic
# numbers must not take hours.
_MAX_SEARCH_RATIO: Final = 16
_READ_BYTES: Final = 1 << 20
# Above all group numbers.
_ANY: Final = 2**64


@dataclass(frozen=True, slots=True)
class FoundGroup:
    header: GroupHeader
    table: GroupTable
    segment: int
    offset: int

    @property
    def records_at(self) -> int:
        return self.offset + HEADER_BYTES + self.header.table_bytes

    @property
    def end(self) -> int:
        return self.offset + self.header.group_bytes


class LogReplay:
    """An iteration over the groups after `number`, which ends at `end` of `segment`."""

    def __init__(self, folder: Path, number: int, segment: int, end: int, acknowledged: int) -> None:
        self._folder = folder
        # Groups up to this number were acknowledged.
        self._acknowledged = acknowledged
        # The last group that was found, and its end.
        self.number = number
        self.segment = segment
        self.end = end
        # The damage at which it ended; None: it reached the end of the log.
        self.damage: str | None = None

    def __iter__(self) -> Iterator[FoundGroup]:
        segments = [segment for segment in list_segments(self._folder) if segment >= self.segment]
        for segment in segments:
            offset = self.end if segment == self.segment else 0
            try:
                for group in scan_segment(self._folder, segment, offset, self._acknowledged):
                    if group.header.number != self.number + 1:
                        raise BadGroup(f"group {group.header.number} follows group {self.number}")
                    self.number, self.segment, self.end = group.header.number, segment, group.end
                    yield group
            except BadGroup as error:
                self.damage = f"{segment_path(self._folder, segment)}: {error}"
                return
            except OSError as error:
                # A sector that could not be written may not be readable either. It was not acknowledged.
                if error.errno != errno.EIO or self.number < self._acknowledged:
                    raise
                self.damage = f"{segment_path(self._folder, segment)}: {error}"
                return


def scan_segment(folder: Path, segment: int, offset: int, acknowledged: int) -> Iterator[FoundGroup]:
    """Yield the groups of a segment from an offset on. Raises `BadGroup` at a damaged one.

    Records of groups up to `acknowledged` are not checked.
    """
    with segment_path(folder, segment).open("rb") as file:
        size = file.seek(0, 2)
        if size < offset:
            raise BadGroup(f"it has {size} bytes, but {offset} are needed")
        while offset < size:
            group = _read_group(file, size, segment, offset, acknowledged)
            yield group
            offset = group.end


def salvage_segment(folder: Path, segment: int, after: int, acknowledged: int) -> Iterator[FoundGroup]:
    """Yield all groups of a segment that can be read, and skip damaged ones. All have higher numbers than `after`."""
    path = segment_path(folder, segment)
    with path.open("rb") as file:
        size = file.seek(0, 2)
        offset, last = 0, 0
        while offset < size:
            try:
                group = _read_group(file, size, segment, offset, acknowledged)
            except BadGroup as error:
                _log.error("%s: %s: this group is skipped", path, error)
                found = _read_next_by_length(file, size, segment, offset) or _search_next(
                    file, size, segment, offset, after, last
                )
                if found is None:
                    _log.error("%s: no group was found after byte %d", path, offset)
                    return
                offset = found.offset
                continue
            yield group
            offset, after, last = group.end, group.header.number, group.header.number


def _read_group(file: BinaryIO, size: int, segment: int, offset: int, acknowledged: int) -> FoundGroup:
    file.seek(offset)
    header = decode_group_header(_read_bytes(file, HEADER_BYTES))
    if offset + header.group_bytes > size:
        raise BadGroup(f"group {header.number} at byte {offset} is truncated")
    table = decode_table(header, _read_bytes(file, header.table_bytes))
    if header.number > acknowledged and _compute_crc(file, header.records_bytes) != header.records_crc:
        raise BadGroup(f"the records of group {header.number} at byte {offset} do not match their checksum")
    return FoundGroup(header, table, segment, offset)


def _read_next_by_length(file: BinaryIO, size: int, segment: int, offset: int) -> FoundGroup | None:
    """Return the group after a damaged one, if the damaged one's length is right. Records are not checked."""
    try:
        file.seek(offset)
        header = decode_group_header(_read_bytes(file, HEADER_BYTES))
        found = _read_group(file, size, segment, offset + header.group_bytes, _ANY)
    except BadGroup:
        return None
    return found if found.header.number == header.number + 1 else None


def _search_next(file: BinaryIO, size: int, segment: int, offset: int, after: int, last: int) -> FoundGroup | None:
    """Search for the next group by its magic number. `last` is the group that ends at `offset`; 0: unknown."""
    left_bytes = _MAX_SEARCH_RATIO * size
    for at in _find_magic(file, offset + 1):
        file.seek(at)
        try:
            header = decode_group_header(_read_bytes(file, HEADER_BYTES))
            # At least one group is damaged in between, and at most as many as fit there.
            highest = last + 1 + (at - offset) // MIN_GROUP_BYTES if last else _ANY
            lowest = last + 1 if last else after
            if not lowest < header.number <= highest or at + header.group_bytes > size:
                continue
            left_bytes -= HEADER_BYTES + header.table_bytes
            if left_bytes < 0:
                return None
            found = _read_group(file, size, segment, at, _ANY)
            if found.end < size:
                following = _read_group(file, size, segment, found.end, _ANY)
                if following.header.number != header.number + 1:
                    continue
        except BadGroup:
            continue
        return found
    return None


def _find_magic(file: BinaryIO, offset: int) -> Iterator[int]:
    while True:
        file.seek(offset)
        data = _read_bytes(file, _READ_BYTES)
        at = data.find(MAGIC_BYTES)
        while at >= 0:
            yield offset + at
            at = data.find(MAGIC_BYTES, at + 1)
        if len(data) < _READ_BYTES:
            return
        offset += len(data) - len(MAGIC_BYTES) + 1


def _read_bytes(file: BinaryIO, size: int) -> bytes:
    """Read in portions, so that a damaged size doesn't take memory."""
    parts = []
    while size:
        part = file.read(min(size, _READ_BYTES))
        if not part:
            break
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _compute_crc(file: BinaryIO, size: int) -> int:
    crc = 0
    while size:
        part = file.read(min(size, _READ_BYTES))
        if not part:
            break
        crc = crc32c(part, crc)
        size -= len(part)
    return crc
