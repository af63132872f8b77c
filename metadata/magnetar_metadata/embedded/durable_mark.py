"""How far a folder's log was acknowledged, kept apart from the log.

RocksDB can't tell a log whose end was never acknowledged from one that lost what was: after a power cut the last record
may be half there, which is no loss, and a log that is cut off, emptied or gone altogether opens without a word. So the
sequence number of the last group of changes is written here after the group's fsync and before its answers. On opening,
a log that reaches at least so far holds all that was acknowledged; one that does not is damaged.

The file has two slots of one sector each, written in turn, with a checksum: a slot that was being written when the
power went leaves the other, and the group that it stood for was not answered. The file is locked as long as it is open,
which is what keeps a second process from the folder; a forked child does not keep it (`forked.py`).
"""

from __future__ import annotations

import fcntl
import os
import struct
from pathlib import Path
from typing import Final

import crc32c

from magnetar_metadata.embedded import forked
from magnetar_metadata.errors import StoreDamaged, StoreInUse

_SLOT: Final = struct.Struct(">QI")
_SLOT_BYTES: Final = 512
_NAME: Final = "durable-mark"
_CLOSED: Final = -1


class DurableMark:
    """The open and locked file."""

    def __init__(self, file: int, sequence: int, slot: int) -> None:
        self._file = file
        # The last one written.
        self.sequence = sequence
        # The slot for the next one.
        self._slot = slot

    def was_forked(self) -> None:
        """The lock is the parent's alone; it keeps it, as closing a file only gives up what this process has of it."""
        self.close()

    @classmethod
    def open(cls, folder: Path) -> DurableMark:
        """Opens the folder's mark, or makes it where there is no database yet."""
        path = folder / _NAME
        with forked.opening:
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            mark = cls(file, 0, 0)
            forked.note(mark)
        try:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise StoreInUse(f"the metadata folder {folder} is open in another process or store") from None
            slots = [_read(file, 0), _read(file, 1)]
            newest = max((sequence for sequence in slots if sequence is not None), default=None)
            if newest is None:
                if (folder / "CURRENT").exists():
                    raise StoreDamaged(f"{path} is damaged or gone: it can't be told what the folder should hold")
                mark.write(0)
                mark.write(0)
                _sync_folder(folder)
                return mark
            mark.sequence, mark._slot = newest, 1 - slots.index(newest)
            return mark
        except BaseException:
            mark.close()
            raise

    def write(self, sequence: int) -> None:
        """Durable when this returns."""
        slot = _SLOT.pack(sequence, crc32c.crc32c(sequence.to_bytes(8, "big")))
        os.pwrite(self._file, slot.ljust(_SLOT_BYTES, b"\0"), self._slot * _SLOT_BYTES)
        os.fdatasync(self._file)
        self.sequence = sequence
        self._slot = 1 - self._slot

    def close(self) -> None:
        """Gives up the lock. Doing it twice is harmless: the number may be another file's by then."""
        file, self._file = self._file, _CLOSED
        if file != _CLOSED:
            os.close(file)


def _read(file: int, slot: int) -> int | None:
    data = os.pread(file, _SLOT.size, slot * _SLOT_BYTES)
    if len(data) < _SLOT.size:
        return None
    sequence, checksum = _SLOT.unpack(data)
    return sequence if crc32c.crc32c(data[:8]) == checksum else None


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
