"""The log's files: appended to, synced, read, and deleted when nothing of them is left.

A group is first in line, in memory, where it can be read at once; `sync` writes what is in line and syncs it. What is
in line is changed on the event loop alone; the files are written and read in threads. A file is named for its number,
and holds groups one after the other and nothing else. Numbers are given once.

Reading keeps so many files open. One that goes is closed when the last who reads it is done, as only then nobody holds
the object: a file number that was closed under a reader could be another file's by then.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from magnetar_bookie.storage.rocksdb.group_format import EncodedGroup
from magnetar_metadata.locked_folder import sync_folder

__all__ = ["OpenFile", "PendingWrites", "Segments", "segment_path", "segments_in"]

_log = logging.getLogger(__name__)
# The most buffers that one system call takes.
_BUFFERS: Final = 1024


class OpenFile:
    """A file number that lives as long as somebody holds this."""

    def __init__(self, path: Path, flags: int) -> None:
        self.number = -1
        self.number = os.open(path, flags | os.O_CLOEXEC, 0o644)

    def __del__(self) -> None:
        if self.number >= 0:
            os.close(self.number)


@dataclass(slots=True)
class PendingWrites:
    """What is to be written next."""

    # Segment → the bytes that come at its end.
    parts: dict[int, list[bytes]] = field(default_factory=dict)
    # Segments that are to be made.
    new: dict[int, None] = field(default_factory=dict)
    # Where the records are: (segment, offset).
    places: list[tuple[int, int]] = field(default_factory=list)
    # The last group in it.
    number: int = 0


class Segments:
    """`current` is the segment that is appended to and where its end will be, once all in line is written."""

    def __init__(self, folder: Path, segment_bytes: int, max_open: int, current: int, end: int) -> None:
        self.folder = folder
        self._segment_bytes = segment_bytes
        self._max_open = max_open
        self.current = current
        self.end = end
        self._line = PendingWrites()
        # Records that are not written to a file yet: (segment, offset) → record.
        self.in_line: dict[tuple[int, int], bytes] = {}
        self._appended: tuple[int, OpenFile] | None = None
        self._open: OrderedDict[int, OpenFile] = OrderedDict()
        self._lock = threading.Lock()

    def append(self, group: EncodedGroup) -> tuple[int, int]:
        """Puts it in line; returns the segment and the offset of the group."""
        if self.end and self.end + group.size > self._segment_bytes:
            self.current, self.end = self.current + 1, 0
        if not self.end:
            self._line.new[self.current] = None
        segment, offset = self.current, self.end
        self._line.parts.setdefault(segment, []).extend(group.parts)
        self._line.number = group.number
        at, in_line, places = offset + group.records_at, self.in_line, self._line.places
        for record in group.parts[1:]:
            place = segment, at
            in_line[place] = record
            places.append(place)
            at += len(record)
        self.end = at
        return segment, offset

    def take(self) -> PendingWrites:
        """What `sync` is to write. What is appended from now on comes after it."""
        line, self._line = self._line, PendingWrites()
        return line

    def written(self, line: PendingWrites) -> None:
        """`sync` is done with it: it is read from the files."""
        for place in line.places:
            self.in_line.pop(place, None)

    def sync(self, line: PendingWrites) -> None:
        """Writes what was taken, and makes it durable. After an error nothing is known of the files."""
        for segment, parts in line.parts.items():
            file = self._file_to_append(segment, segment in line.new)
            _write(file.number, parts)
            os.fdatasync(file.number)
        if line.new:
            sync_folder(self.folder)

    def _file_to_append(self, segment: int, new: bool) -> OpenFile:
        if new:
            # Whatever bears this name holds nothing that was ever acknowledged: numbers are given once.
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND
            self._appended = segment, OpenFile(segment_path(self.folder, segment), flags)
        elif self._appended is None or self._appended[0] != segment:
            self._appended = segment, OpenFile(segment_path(self.folder, segment), os.O_WRONLY | os.O_APPEND)
        return self._appended[1]

    def file(self, segment: int) -> OpenFile:
        """To read from. Raises `FileNotFoundError` where the segment is gone."""
        with self._lock:
            file = self._open.get(segment)
            if file is not None:
                self._open.move_to_end(segment)
                return file
            file = self._open[segment] = OpenFile(segment_path(self.folder, segment), os.O_RDONLY)
            if len(self._open) > self._max_open:
                self._open.popitem(last=False)
            return file

    def read(self, segment: int, offset: int, size: int) -> bytes:
        """Shorter only where the file ends, or the disk can't read on: then so much less is there.

        A sector that can't be read is damage in one place. It is not the end of the process: whoever looks for damage
        would meet it again at each start, and what is mended is written elsewhere.
        """
        file = self.file(segment)
        parts: list[bytes] = []
        while size:
            try:
                data = os.pread(file.number, size, offset)
            except OSError as error:
                if error.errno != errno.EIO:
                    raise
                _log.error("%s can't be read at byte %d: %s", segment_path(self.folder, segment), offset, error)
                break
            if len(data) == size and not parts:
                return data
            if not data:
                break
            parts.append(data)
            size -= len(data)
            offset += len(data)
        return b"".join(parts)

    def delete(self, segments: Sequence[int]) -> None:
        """Nothing refers to them any more, durably. They do not come back: who forgets them would never free them."""
        with self._lock:
            for segment in segments:
                self._open.pop(segment, None)
                with contextlib.suppress(FileNotFoundError):
                    segment_path(self.folder, segment).unlink()
        sync_folder(self.folder)

    def close(self) -> None:
        self._appended = None
        with self._lock:
            self._open.clear()


def segment_path(folder: Path, segment: int) -> Path:
    return folder / f"{segment:016d}.log"


def segments_in(folder: Path) -> list[int]:
    """The numbers of the files that there are, in order."""
    return sorted(int(path.stem) for path in folder.glob("*.log") if path.stem.isdecimal())


def _write(file: int, parts: Sequence[bytes]) -> None:
    """All of it: a write may take less than it was given."""
    for begin in range(0, len(parts), _BUFFERS):
        buffers: list[bytes | memoryview] = list(parts[begin : begin + _BUFFERS])
        left = sum(map(len, buffers))
        while left := left - (written := os.writev(file, buffers)):
            while written >= len(buffers[0]):
                written -= len(buffers.pop(0))
            buffers[0] = memoryview(buffers[0])[written:]
