"""Disk space: how much of it entries may use, and the file that reserves some of it.

`reserve_disk_bytes` stay free of entries, so that the bookie never fills the disk itself: fences, tombstones, the index
and compaction always have space. That doesn't help if other programs fill the disk. A bookie can't even open its index
on a disk without a free byte, so it couldn't serve reads either. The ballast is for that case: a file that is deleted
when the storage is opened with too little free space, and created again when there is enough.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from magnetar_bookie.settings.storage import StorageSettings
from magnetar_bookie.storage.interface import StorageFailed, StorageFull

__all__ = ["BALLAST_NAME", "DiskSpace", "create_ballast", "get_free_bytes", "release_ballast"]

_log = logging.getLogger(__name__)

BALLAST_NAME: Final = "ballast"

# With this much free above the reserve, the last answer of the file system is used again for a moment: `statvfs` takes
# 10 µs, for each entry that is added alone. No disk fills up by this much within that time.
_PLENTY_BYTES: Final = 2 << 30
_CACHED_S: Final = 0.05


class DiskSpace:
    """Checks free space and the quota. `count_log_bytes` arguments are called only if there is a quota."""

    def __init__(self, folder: Path, settings: StorageSettings) -> None:
        self._folder = folder
        self._settings = settings
        # Free bytes at the last call of `statvfs`, less the bytes of all entries checked since.
        self._free = 0
        self._measured_at = 0.0

    def check_entries_fit(self, count_log_bytes: Callable[[], int], size_bytes: int) -> None:
        """Raise `StorageFull` if entries of this size can't be written."""
        settings = self._settings
        free = self._cached_free_bytes()
        self._free = free - size_bytes
        if free < settings.reserve_disk_bytes + size_bytes:
            raise StorageFull(
                f"the disk of {self._folder} is full: {free} bytes are free, {size_bytes} are needed, and "
                f"{settings.reserve_disk_bytes} are reserved (reserve_disk_bytes): delete ledgers, or "
                "enlarge the disk"
            )
        if settings.max_disk_bytes and count_log_bytes() + size_bytes > settings.max_disk_bytes:
            raise StorageFull(
                f"{self._folder} holds {count_log_bytes()} bytes, and {size_bytes} more would exceed the limit of "
                f"{settings.max_disk_bytes} (max_disk_bytes): delete ledgers, or raise the limit"
            )

    def can_resume(self, count_log_bytes: Callable[[], int]) -> bool:
        """Return whether a full disk has enough space again for more than a few entries."""
        settings = self._settings
        if self._measure_free_bytes() < settings.reserve_disk_bytes + settings.resume_disk_bytes:
            return False
        quota = settings.max_disk_bytes
        return not quota or count_log_bytes() + min(settings.resume_disk_bytes, quota // 10) <= quota

    def can_compact(self, live_bytes: int) -> bool:
        """Return whether compaction may write this much before it frees space. It may use most of the reserve."""
        return self._measure_free_bytes() >= self._settings.reserve_disk_bytes // 4 + live_bytes

    def _cached_free_bytes(self) -> int:
        plenty = self._free >= self._settings.reserve_disk_bytes + _PLENTY_BYTES
        if plenty and time.monotonic() < self._measured_at + _CACHED_S:
            return self._free
        return self._measure_free_bytes()

    def _measure_free_bytes(self) -> int:
        self._measured_at = time.monotonic()
        self._free = get_free_bytes(self._folder)
        return self._free


def release_ballast(folder: Path, settings: StorageSettings) -> None:
    """Delete the ballast if less is free than its size."""
    path = folder / BALLAST_NAME
    free = get_free_bytes(folder)
    if free < _ballast_bytes(settings) and path.exists():
        size = path.stat().st_size
        path.unlink()
        _log.error(
            "Only %d bytes were free for %s: the reserve of %d bytes was released. Free some space, or "
            "ledgers may soon be unreadable, too.",
            free,
            folder,
            size,
        )


def create_ballast(folder: Path, settings: StorageSettings) -> None:
    """Create the ballast if it doesn't exist and there is enough space. Runs in a thread. It is not made durable."""
    size = _ballast_bytes(settings)
    path = folder / BALLAST_NAME
    if not size or path.exists() or get_free_bytes(folder) < settings.reserve_disk_bytes + size:
        return
    temporary = folder / f"{BALLAST_NAME}.new"
    try:
        file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            os.posix_fallocate(file, 0, size)
        finally:
            os.close(file)
        temporary.rename(path)
    except OSError as error:
        # Only the protection by the ballast is missing. The next attempt may succeed.
        _log.warning("Space can't be reserved on the disk of %s: %s", folder, error)
        temporary.unlink(missing_ok=True)


def _ballast_bytes(settings: StorageSettings) -> int:
    """At most half of the reserve, so that entries can't use the space of a released ballast."""
    return min(settings.ballast_disk_bytes, settings.reserve_disk_bytes // 2)


def get_free_bytes(folder: Path) -> int:
    try:
        space = os.statvfs(folder)
    except OSError as error:
        raise StorageFailed(f"the free space of the disk of {folder} can't be read: {error}") from error
    return space.f_bavail * space.f_frsize
