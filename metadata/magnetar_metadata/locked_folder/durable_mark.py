"""How far a folder's log was acknowledged, kept apart from the log.

A log can't tell an end that was never acknowledged from the loss of what was: after a power cut the last group may be
half there, which is no loss, and a log that is cut off, emptied or gone altogether looks like a short one. So the
number of the last group of changes is written here after the group's fsync and before its answers. On opening, a log
that reaches at least so far holds all that was acknowledged; one that does not is damaged.

`write` survives the process, and `sync` the machine. Who does both before each answer knows exactly how far the log
must reach; who only writes knows it after any death of the process, and after a power cut a number that may be too low,
never one too high.

The file has two slots, written in turn, with a checksum: a slot that was being written when the power went leaves the
other. Each is a block of 4096 bytes, as that is what many disks write at once, however small the sectors that they
show. The second slot used to be the second sector; it is read there, too, until a write of the first clears it. The
file is locked as long as it is open, which is what keeps a second process from the folder; a forked child does not keep
it (`forked.py`).
"""

from __future__ import annotations

import fcntl
import os
import struct
from pathlib import Path
from typing import Final

import crc32c

from magnetar_metadata.locked_folder import forked

__all__ = ["MARK_NAME", "DurableMark", "FolderInUse", "sync_folder"]

MARK_NAME: Final = "durable-mark"
_SLOT: Final = struct.Struct(">QI")
_SLOT_BYTES: Final = 4096
# Where the second slot used to be.
_FORMER_SLOT_AT: Final = 512
_CLOSED: Final = -1


class FolderInUse(Exception):
    """Another process, or another part of this one, has the folder open."""


class DurableMark:
    """The open and locked file."""

    def __init__(self, file: int) -> None:
        self._file = file
        # The last one written. None: nothing can be read, as in a folder that is new or whose mark is damaged or gone.
        self.number: int | None = None
        # The slot for the next one.
        self._slot = 0

    def was_forked(self) -> None:
        """The lock is the parent's alone; it keeps it, as closing a file only gives up what this process has of it."""
        self.close()

    @classmethod
    def open(cls, folder: Path) -> DurableMark:
        """Locks the folder and reads its mark. Raises `FolderInUse`."""
        with forked.opening:
            file = os.open(folder / MARK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            mark = cls(file)
            forked.note(mark)
        try:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise FolderInUse(
                    f"the folder {folder} is in use by another process or store: stop it first, or use another folder"
                ) from None
            slots = [_read(file, at) for at in (0, _SLOT_BYTES, _FORMER_SLOT_AT)]
            mark.number = max((number for number in slots if number is not None), default=None)
            # Next is the one that does not hold it; the former slot lies in the first one's block.
            if mark.number is not None:
                mark._slot = 0 if slots.index(mark.number) == 1 else 1
            return mark
        except BaseException:
            mark.close()
            raise

    def write(self, number: int) -> None:
        """It is there whatever becomes of this process."""
        slot = _SLOT.pack(number, crc32c.crc32c(number.to_bytes(8, "big")))
        os.pwrite(self._file, slot.ljust(_SLOT_BYTES, b"\0"), self._slot * _SLOT_BYTES)
        self.number = number
        self._slot = 1 - self._slot

    def sync(self) -> None:
        """What was written is there whatever becomes of this machine."""
        os.fdatasync(self._file)

    def begin(self, folder: Path, number: int) -> None:
        """Writes both slots, durably, with the file's name: nothing that was there before counts any more."""
        self.write(number)
        self.write(number)
        self.sync()
        sync_folder(folder)

    def close(self) -> None:
        """Gives up the lock. Doing it twice is harmless: the number may be another file's by then."""
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
    """The names in it are durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
