"""Marker files: what the next opening of the storage must know in any case.

`LOST`: acknowledged data is missing. The file is created before anything is changed because of the loss, and deleted
when the bookie has stored its own record. `INDEX_DAMAGED`: the index can't be read. The file is deleted when the index
was rebuilt from the log.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from magnetar_metadata.locked_folder import sync_folder

__all__ = ["INDEX_DAMAGED", "LOST", "has_marker", "remove_marker", "write_marker"]

LOST: Final = "lost"
INDEX_DAMAGED: Final = "index-damaged"


def has_marker(folder: Path, name: str) -> bool:
    return (folder / name).exists()


def write_marker(folder: Path, name: str, text: str) -> None:
    """Create the file durably, unless it exists: the first text stays."""
    if has_marker(folder, name):
        return
    temporary = folder / f"{name}.new"
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text + "\n")
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(folder / name)
    sync_folder(folder)


def remove_marker(folder: Path, name: str) -> None:
    (folder / name).unlink(missing_ok=True)
    sync_folder(folder)
