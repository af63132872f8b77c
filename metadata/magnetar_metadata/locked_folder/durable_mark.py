"""The durable mark: how far a folder's log was acknowledged, stored outside the log.

A log can't distinguish an end that was never acknowledged from a loss. After a power failure the last group may be
incomplete, which is no loss; a log that was truncated or deleted just looks short. So the number of the last group of
changes is written here, after the group's fsync and before its answers. When the folder is opened, a log that reaches
this number has all acknowledged changes; a shorter one is damaged.

`write` survives the end of the process, `sync` also the end of the machine. A store that does both before each answer
always knows exactly how far its log must reach. A store that only writes knows it after any end of the process; after a
power failure the number may be too low, but never too high.

The file has two slots, written in turn, with a checksum. If the power fails while one is written, the other is intact.
Each is a block of 4096 bytes, since many disks write that much at once, even if they report smaller sectors. Older
versions had the second slot in the second sector; it is read there, too, until a write of the first slot clears it. The
file is locked while it is open, which excludes a second process from the folder. A forked child does not keep the lock
(`fork_handling.py`).
"""

from __future__ import annotations

import fcntl
import os
import struct
from pathlib import Path
from typing import Final

import crc32c

from magnetar_metadata.locked_folder import fork_handling

__all__ = ["MARK_NAME", "DurableMark", "FolderInUse", "sync_folder"]

MARK_NAME: Final = "durable-mark"
_SLOT: Final = struct.Struct(">QI")
_SLOT_BYTES: Final = 4096
# The position of the second slot in files of older versions.
_FORMER_SLOT_AT: Final = 512
_CLOSED: Final = -1


class FolderInUse(Exception):
    """Another process, or another part of this one, has the folder open."""


class DurableMark:
    """The open and locked file of a folder."""

    def __init__(self, file: int) -> None:
        self._file = file
        # The last number written. None: it can't be read, because the folder is new, or the mark is damaged or missing.
        self.number: int | None = None
        # The slot of the next number.
        self._slot = 0

    def abandon_after_fork(self) -> None:
        """Close the file in a forked child. The parent keeps the lock: this closes only the child's descriptor."""
        self.close()

    @classmethod
    def open(cls, folder: Path) -> DurableMark:
        """Lock the folder and read its mark. Raises `FolderInUse`."""
        with fork_handling.opening:
            file = os.open(folder / MARK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            mark = cls(file)
            fork_handling.register(mark)
        try:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise FolderInUse(
                    f"the folder {folder} is in use by another process or store: stop it first, or use another folder"
                ) from None
            slots = [_read(file, at) for at in (0, _SLOT_BYTES, _FORMER_SLOT_AT)]
            mark.number = max((number for number in slots if number is not None), default=None)
            # The next slot is the one without this number. The old position of slot 2 is in the block of slot 1.
            if mark.number is not None:
                mark._slot = 0 if slots.index(mark.number) == 1 else 1
            return mark
        except BaseException:
            mark.close()
            raise

    def write(self, number: int) -> None:
        """Write the number so that it survives the end of this process."""
        slot = _SLOT.pack(number, crc32c.crc32c(number.to_bytes(8, "big")))
        os.pwrite(self._file, slot.ljust(_SLOT_BYTES, b"\0"), self._slot * _SLOT_BYTES)
        self.number = number
        self._slot = 1 - self._slot

    def sync(self) -> None:
        """Sync the number so that it survives the end of this machine."""
        os.fdatasync(self._file)

    def begin(self, folder: Path, number: int) -> None:
        """Write both slots and the file's name durably. Earlier numbers no longer count."""
        self.write(number)
        self.write(number)
        self.sync()
        sync_folder(folder)

    def close(self) -> None:
        """Close the file, which releases the lock. Can be called twice: the descriptor may be another file's by
        then."""
        file, self._file = self._file, _CLOSED
        if file != _CLOSED:
            os.close(file)


def _read(file: int, at: int) -> int | None:
    data = os.pread(file, _SLOT.size, at)
    if len(data) < _SLOT.size:
        return None
    number, checksum = _SLOT.unpack(data)
    return int(number) if crc32c.crc32c(data[:8]) == checksum else None


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
