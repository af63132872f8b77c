"""Reading the log again: the groups behind those that the index knows.

They are read up to the first that is not whole or not the next. A group whose head and table are right but whose
records are not was cut off if it may not have been acknowledged; if it was, there it is, and what was damaged since is
found when it is read.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from crc32c import crc32c

from magnetar_bookie.storage.rocksdb.group import (
    HEAD_BYTES,
    BadGroup,
    GroupHead,
    GroupTable,
    decode_head,
    decode_table,
)
from magnetar_bookie.storage.rocksdb.segments import segment_path, segments_in

__all__ = ["FoundGroup", "Walk", "groups_in"]

_PORTION: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class FoundGroup:
    head: GroupHead
    table: GroupTable
    segment: int
    offset: int

    @property
    def records_at(self) -> int:
        return self.offset + HEAD_BYTES + self.head.table_bytes

    @property
    def end(self) -> int:
        return self.offset + self.head.size


class Walk:
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
                for group in groups_in(self._folder, segment, offset, self._acknowledged):
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


def groups_in(folder: Path, segment: int, offset: int, acknowledged: int) -> Iterator[FoundGroup]:
    """The groups of one segment from there on. Raises `BadGroup` behind the last one that is there."""
    with segment_path(folder, segment).open("rb") as file:
        size = file.seek(0, 2)
        if size < offset:
            raise BadGroup(f"it has {size} bytes, and should have {offset}")
        while offset < size:
            file.seek(offset)
            head = decode_head(_read(file, HEAD_BYTES))
            if offset + head.size > size:
                raise BadGroup(f"group {head.number} at {offset} is cut off")
            table = decode_table(head, _read(file, head.table_bytes))
            if head.number > acknowledged and _crc(file, head.records_bytes) != head.records_crc:
                raise BadGroup(f"the records of group {head.number} at {offset} do not match their checksum")
            yield FoundGroup(head, table, segment, offset)
            offset += head.size


def _read(file: BinaryIO, size: int) -> bytes:
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
