"""Reading the log again: the groups behind those that the index knows.

They are read up to the first that is not whole or not the next. A group whose head and table are right but whose
records are not was cut off if it may not have been acknowledged; if it was, there it is, and what was damaged since is
found when it is read.

Who makes the index anew wants what comes behind a group that rotted, too (`salvage_segment`): where its head says
that it ends, or where the next magic is with a right checksum. Records are anybody's bytes, and could look like a
group: so one that was looked for must have a number that fits its place, and the right one behind it.
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
    LEAST_GROUP_BYTES,
    MAGIC_BYTES,
    BadGroup,
    GroupHeader,
    GroupTable,
    decode_group_header,
    decode_table,
)
from magnetar_bookie.storage.rocksdb.segments import segment_path, segments_in

__all__ = ["FoundGroup", "LogReplay", "salvage_segment", "scan_segment"]

_log = logging.getLogger(__name__)

# What looks like a group is held against its checksum until that comes to so many times the segment: records that are
# full of such places must not take hours.
_LOOKS: Final = 16
_PORTION: Final = 1 << 20
_ANY: Final = 2**64


@dataclass(frozen=True, slots=True)
class FoundGroup:
    head: GroupHeader
    table: GroupTable
    segment: int
    offset: int

    @property
    def records_at(self) -> int:
        return self.offset + HEADER_BYTES + self.head.table_bytes

    @property
    def end(self) -> int:
        return self.offset + self.head.size


class LogReplay:
    """Through the log, group by group, from behind `number`, which ends in `segment` at `end`."""

    def __init__(self, folder: Path, number: int, segment: int, end: int, acknowledged: int) -> None:
        self._folder = folder
        self._acknowledged = acknowledged
        # The last group that was found, and where it ends.
        self.number = number
        self.segment = segment
        self.end = end
        # Why it went no further; None: the log ends there.
        self.broken: str | None = None

    def __iter__(self) -> Iterator[FoundGroup]:
        segments = [segment for segment in segments_in(self._folder) if segment >= self.segment]
        for segment in segments:
            offset = self.end if segment == self.segment else 0
            try:
                for group in scan_segment(self._folder, segment, offset, self._acknowledged):
                    if group.head.number != self.number + 1:
                        raise BadGroup(f"group {group.head.number} follows group {self.number}")
                    self.number, self.segment, self.end = group.head.number, segment, group.end
                    yield group
            except BadGroup as error:
                self.broken = f"{segment_path(self._folder, segment)}: {error}"
                return
            except OSError as error:
                # A sector that could not be written may not be readable either. Nobody was told that it was.
                if error.errno != errno.EIO or self.number < self._acknowledged:
                    raise
                self.broken = f"{segment_path(self._folder, segment)}: {error}"
                return


def scan_segment(folder: Path, segment: int, offset: int, acknowledged: int) -> Iterator[FoundGroup]:
    """The groups of one segment from there on. Raises `BadGroup` behind the last one that is there."""
    with segment_path(folder, segment).open("rb") as file:
        size = file.seek(0, 2)
        if size < offset:
            raise BadGroup(f"it has {size} bytes, but {offset} are needed")
        while offset < size:
            group = _group_at(file, size, segment, offset, acknowledged)
            yield group
            offset = group.end


def salvage_segment(folder: Path, segment: int, after: int, acknowledged: int) -> Iterator[FoundGroup]:
    """All groups of one segment that can be read, whatever lies between; they come behind group `after`."""
    path = segment_path(folder, segment)
    with path.open("rb") as file:
        size = file.seek(0, 2)
        offset, last = 0, 0
        while offset < size:
            try:
                group = _group_at(file, size, segment, offset, acknowledged)
            except BadGroup as error:
                _log.error("%s: %s: this group is skipped", path, error)
                found = _where_it_says(file, size, segment, offset) or _next_one(
                    file, size, segment, offset, after, last
                )
                if found is None:
                    _log.error("%s: no group was found after byte %d", path, offset)
                    return
                offset = found.offset
                continue
            yield group
            offset, after, last = group.end, group.head.number, group.head.number


def _group_at(file: BinaryIO, size: int, segment: int, offset: int, acknowledged: int) -> FoundGroup:
    file.seek(offset)
    head = decode_group_header(_read_portions(file, HEADER_BYTES))
    if offset + head.size > size:
        raise BadGroup(f"group {head.number} at byte {offset} is truncated")
    table = decode_table(head, _read_portions(file, head.table_bytes))
    if head.number > acknowledged and _crc(file, head.records_bytes) != head.records_crc:
        raise BadGroup(f"the records of group {head.number} at byte {offset} do not match their checksum")
    return FoundGroup(head, table, segment, offset)


def _where_it_says(file: BinaryIO, size: int, segment: int, offset: int) -> FoundGroup | None:
    """The group behind the one that rotted, if that one's length did not: records are not looked into."""
    try:
        file.seek(offset)
        head = decode_group_header(_read_portions(file, HEADER_BYTES))
        found = _group_at(file, size, segment, offset + head.size, _ANY)
    except BadGroup:
        return None
    return found if found.head.number == head.number + 1 else None


def _next_one(file: BinaryIO, size: int, segment: int, offset: int, after: int, last: int) -> FoundGroup | None:
    """`last` is the group that ends at `offset`; 0: not known."""
    left = _LOOKS * size
    for at in _places_of_magic(file, offset + 1):
        file.seek(at)
        try:
            head = decode_group_header(_read_portions(file, HEADER_BYTES))
            # One at least rotted in between, and no more than there is room for.
            highest = last + 1 + (at - offset) // LEAST_GROUP_BYTES if last else _ANY
            if not (last + 1 if last else after) < head.number <= highest or at + head.size > size:
                continue
            left -= HEADER_BYTES + head.table_bytes
            if left < 0:
                return None
            found = _group_at(file, size, segment, at, _ANY)
            if found.end < size and _group_at(file, size, segment, found.end, _ANY).head.number != head.number + 1:
                continue
        except BadGroup:
            continue
        return found
    return None


def _places_of_magic(file: BinaryIO, offset: int) -> Iterator[int]:
    while True:
        file.seek(offset)
        data = _read_portions(file, _PORTION)
        place = data.find(MAGIC_BYTES)
        while place >= 0:
            yield offset + place
            place = data.find(MAGIC_BYTES, place + 1)
        if len(data) < _PORTION:
            return
        offset += len(data) - len(MAGIC_BYTES) + 1


def _read_portions(file: BinaryIO, size: int) -> bytes:
    parts = []
    while size:
        part = file.read(min(size, _PORTION))
        if not part:
            break
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _crc(file: BinaryIO, size: int) -> int:
    crc = 0
    while size:
        part = file.read(min(size, _PORTION))
        if not part:
            break
        crc = crc32c(part, crc)
        size -= len(part)
    return crc
