"""The segments of the log: files to which groups are appended, and from which records are read.

An appended group is pending at first: its records are read from memory, and `write_and_sync` writes it later. Pending
groups are changed on the event loop only; files are written and read in threads. A segment's file is named by its
number, and has groups one after the other and nothing else. Numbers are not reused.

A limited number of files are open for reading. A file that is closed or deleted stays usable as long as a reader holds
its object: after a close, the descriptor could belong to another file.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from magnetar_bookie.storage.rocksdb.group_format import EncodedGroup
from magnetar_metadata.locked_folder import sync_folder

__all__ = ["OpenFile", "PendingWrites", "Segments", "list_segments", "segment_path"]

_log = logging.getLogger(__name__)
# The maximum number of buffers of one system call, and of their bytes.
#
# The kernel allocates a file's page cache in blocks as large as the call, up to 2 MiB and more. A virtual machine may
# have returned free blocks of that size to its host, which must then provide each of them again. So writes of entries
# of 5 MB took 2.2 ms/MB. In calls of this size it was 0.2 ms/MB, as long as smaller blocks were free. Each call
# acquires Python's lock again, so much smaller ones would wait longer for that.
_MAX_BUFFERS: Final = 1024
_MAX_CALL_BYTES: Final = 524_288


class OpenFile:
    """A file descriptor, which is closed with its last reference."""

    def __init__(self, path: Path, flags: int) -> None:
        self.descriptor = -1
        self.descriptor = os.open(path, flags | os.O_CLOEXEC, 0o644)

    def __del__(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)


@dataclass(slots=True)
class PendingWrites:
    """Groups that are appended but not written to files yet."""

    # Segment → the bytes to append.
    parts: dict[int, list[bytes]] = field(default_factory=dict)
    # Segments whose files don't exist yet.
    new_segments: dict[int, None] = field(default_factory=dict)
    # (segment, offset) of each record.
    locations: list[tuple[int, int]] = field(default_factory=list)


class Segments:
    """Appends go to the end of segment `current`. `end` is its size when all pending groups are written."""

    def __init__(self, folder: Path, segment_bytes: int, max_open: int, current: int, end: int) -> None:
        self.folder = folder
        self._segment_bytes = segment_bytes
        self._max_open = max_open
        self.current = current
        self.end = end
        self._pending = PendingWrites()
        # Records that are not in a file yet: (segment, offset) → record.
        self.pending_records: dict[tuple[int, int], bytes] = {}
        self._append_file: tuple[int, OpenFile] | None = None
        self._read_files: OrderedDict[int, OpenFile] = OrderedDict()
        self._lock = threading.Lock()

    def append(self, group: EncodedGroup) -> tuple[int, int]:
        """Append a group, to be written later. Return its segment and offset."""
        if self.end and self.end + group.group_bytes > self._segment_bytes:
            self.current, self.end = self.current + 1, 0
        if not self.end:
            self._pending.new_segments[self.current] = None
        segment, offset = self.current, self.end
        self._pending.parts.setdefault(segment, []).extend(group.parts)
        at, pending_records, locations = offset + group.records_offset, self.pending_records, self._pending.locations
        for record in group.parts[1:]:
            location = segment, at
            pending_records[location] = record
            locations.append(location)
            at += len(record)
        self.end = at
        return segment, offset

    def take_pending(self) -> PendingWrites:
        """Return the pending writes, for `write_and_sync`. Later appends are not in it."""
        pending, self._pending = self._pending, PendingWrites()
        return pending

    def write_and_sync(self, pending: PendingWrites) -> None:
        """Write and sync what was taken. Runs in a thread. After an error it is unknown what is in the files."""
        for segment, parts in pending.parts.items():
            file = self._open_to_append(segment, segment in pending.new_segments)
            _write(file.descriptor, parts)
            os.fdatasync(file.descriptor)
        if pending.new_segments:
            sync_folder(self.folder)

    def release_pending(self, pending: PendingWrites) -> None:
        """Release the memory of records that were written: they are read from the files."""
        for location in pending.locations:
            self.pending_records.pop(location, None)

    def _open_to_append(self, segment: int, is_new: bool) -> OpenFile:
        if is_new:
            # A file of this name has nothing that was ever acknowledged, as numbers are not reused.
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND
            self._append_file = segment, OpenFile(segment_path(self.folder, segment), flags)
        elif self._append_file is None or self._append_file[0] != segment:
            self._append_file = segment, OpenFile(segment_path(self.folder, segment), os.O_WRONLY | os.O_APPEND)
        return self._append_file[1]

    def _open_to_read(self, segment: int) -> OpenFile:
        with self._lock:
            file = self._read_files.get(segment)
            if file is not None:
                self._read_files.move_to_end(segment)
                return file
            file = self._read_files[segment] = OpenFile(segment_path(self.folder, segment), os.O_RDONLY)
            if len(self._read_files) > self._max_open:
                self._read_files.popitem(last=False)
            return file

    def read(self, segment: int, offset: int, size: int) -> bytes:
        """Read from a file. The result is shorter if the file ends, or if the disk can't read on.

        Raises `FileNotFoundError` if the segment was deleted. A sector that can't be read is local damage, and doesn't
        fail the storage: the scrubber would find it again after each start, and the repaired record is stored
        elsewhere.
        """
        file = self._open_to_read(segment)
        parts: list[bytes] = []
        while size:
            try:
                data = os.pread(file.descriptor, size, offset)
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
        """Delete files to which the index doesn't refer any more, durably: a file that reappears is never freed."""
        with self._lock:
            for segment in segments:
                self._read_files.pop(segment, None)
                with contextlib.suppress(FileNotFoundError):
                    segment_path(self.folder, segment).unlink()
        sync_folder(self.folder)

    def close(self) -> None:
        self._append_file = None
        with self._lock:
            self._read_files.clear()


def segment_path(folder: Path, segment: int) -> Path:
    return folder / f"{segment:016d}.log"


def list_segments(folder: Path) -> list[int]:
    """Return the numbers of the existing files, in order."""
    return sorted(int(path.stem) for path in folder.glob("*.log") if path.stem.isdecimal())


def _write(descriptor: int, parts: Sequence[bytes]) -> None:
    """Write all parts, although one system call may write less."""
    for buffers in _split_into_calls(parts):
        left = sum(map(len, buffers))
        while left := left - (written := os.writev(descriptor, buffers)):
            while written >= len(buffers[0]):
                written -= len(buffers.pop(0))
            buffers[0] = memoryview(buffers[0])[written:]


def _split_into_calls(parts: Sequence[bytes]) -> Iterator[list[bytes | memoryview]]:
    """Yield the buffers of each system call. A part may be split."""
    buffers: list[bytes | memoryview] = []
    size = 0
    for part in parts:
        rest: bytes | memoryview = part
        while size + len(rest) > _MAX_CALL_BYTES:
            rest, end = memoryview(rest), _MAX_CALL_BYTES - size
            yield [*buffers, rest[:end]]
            buffers, size, rest = [], 0, rest[end:]
        buffers.append(rest)
        size += len(rest)
        if len(buffers) == _MAX_BUFFERS:
            yield buffers
            buffers, size = [], 0
    if buffers:
        yield buffers
