"""A file that holds room on the disk for the day when somebody else has filled it.

What is kept back of the disk (`space.py`) keeps the bookie itself from filling it. Against others it does nothing: a
bookie that ends on a disk without a byte left could not even begin again to be read, as the index writes where it is
opened. So the opening gives this file up where too little is free; it is made again when there is room for all.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Final

from magnetar_bookie.settings.storage import StorageSettings
from magnetar_bookie.storage.rocksdb.space import free_bytes

__all__ = ["BALLAST_NAME", "give_up_ballast", "make_ballast"]

_log = logging.getLogger(__name__)

BALLAST_NAME: Final = "ballast"


def give_up_ballast(folder: Path, settings: StorageSettings) -> None:
    """Where less is free than the ballast should hold."""
    path = folder / BALLAST_NAME
    free = free_bytes(folder)
    if free < _size(settings) and path.exists():
        size = path.stat().st_size
        path.unlink()
        _log.error(
            "Only %d bytes were free for %s: the reserve of %d bytes was released. Free some space, or "
            "ledgers may soon be unreadable, too.",
            free,
            folder,
            size,
        )


def make_ballast(folder: Path, settings: StorageSettings) -> None:
    """Where it is not, and so much is free. In a thread. It need not be durable."""
    size = _size(settings)
    path = folder / BALLAST_NAME
    if not size or path.exists() or free_bytes(folder) < settings.reserve_disk_bytes + size:
        return
    half = folder / f"{BALLAST_NAME}.new"
    try:
        file = os.open(half, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            os.posix_fallocate(file, 0, size)
        finally:
            os.close(file)
        half.rename(path)
    except OSError as error:
        # Nothing is lost but what it was to be good for; the next time may be better.
        _log.warning("Space can't be reserved on the disk of %s: %s", folder, error)
        half.unlink(missing_ok=True)


def _size(settings: StorageSettings) -> int:
    """Less than what is kept back: what is given up must not be taken by entries."""
    return min(settings.ballast_disk_bytes, settings.reserve_disk_bytes // 2)
