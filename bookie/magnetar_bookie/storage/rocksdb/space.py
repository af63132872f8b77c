"""Whether entries find room: some of the disk is kept back for what always must."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from magnetar_bookie.settings.storage import StorageSettings
from magnetar_bookie.storage.interface import StorageFailed, StorageFull

__all__ = ["Space", "free_bytes"]

# Where there is so much more than what is kept back, the disk is not asked again for a moment: asking takes 10 µs for
# each entry that comes alone. Nobody fills so much within that.
_PLENTY_BYTES: Final = 2 << 30
_MOMENT_S: Final = 0.05


class Space:
    """`held` says what the folder holds; it is asked where there is a quota."""

    def __init__(self, folder: Path, settings: StorageSettings) -> None:
        self._folder = folder
        self._settings = settings
        # What was free when it was asked last, less what has been asked for since.
        self._free = 0
        self._asked_at = 0.0

    def check(self, held: Callable[[], int], more: int) -> None:
        """Raises `StorageFull` where so many bytes of entries can't be taken."""
        settings = self._settings
        free = self._free_of_late()
        self._free = free - more
        if free < settings.reserve_disk_bytes + more:
            raise StorageFull(
                f"the disk of {self._folder} is full: {free} bytes are free, {more} are needed, and "
                f"{settings.reserve_disk_bytes} are reserved (reserve_disk_bytes): delete ledgers, or "
                "enlarge the disk"
            )
        if settings.max_disk_bytes and held() + more > settings.max_disk_bytes:
            raise StorageFull(
                f"{self._folder} holds {held()} bytes, and {more} more would exceed the limit of "
                f"{settings.max_disk_bytes} (max_disk_bytes): delete ledgers, or raise the limit"
            )

    def has_room(self, held: Callable[[], int]) -> bool:
        """For more than a few entries: a disk that was full is not called so again for each that goes."""
        settings = self._settings
        if self._free_now() < settings.reserve_disk_bytes + settings.resume_disk_bytes:
            return False
        allowed = settings.max_disk_bytes
        return not allowed or held() + min(settings.resume_disk_bytes, allowed // 10) <= allowed

    def can_move(self, more: int) -> bool:
        """Whether what frees room may take so much first, of what is kept back."""
        return self._free_now() >= self._settings.reserve_disk_bytes // 4 + more

    def _free_of_late(self) -> int:
        plenty = self._free >= self._settings.reserve_disk_bytes + _PLENTY_BYTES
        return self._free if plenty and time.monotonic() < self._asked_at + _MOMENT_S else self._free_now()

    def _free_now(self) -> int:
        self._asked_at = time.monotonic()
        self._free = free_bytes(self._folder)
        return self._free


def free_bytes(folder: Path) -> int:
    try:
        space = os.statvfs(folder)
    except OSError as error:
        raise StorageFailed(f"the free space of the disk of {folder} can't be read: {error}") from error
    return space.f_bavail * space.f_frsize
