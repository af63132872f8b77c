"""What must be known at the next opening, whatever the storage itself holds: notes in files of their own.

`LOST`: something that was acknowledged is missing. It stands there before anything is changed because of it, until the
bookie has written its own record. `INDEX_DAMAGED`: the index can't be read, and has to be made anew from the log. It
stands there until that is done.
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


def write_marker(folder: Path, name: str, why: str) -> None:
    """Durable when this returns. What stands there already stays: it was the first."""
    if has_marker(folder, name):
        return
    half = folder / f"{name}.new"
    with half.open("w", encoding="utf-8") as file:
        file.write(why + "\n")
        file.flush()
        os.fsync(file.fileno())
    half.rename(folder / name)
    sync_folder(folder)


def remove_marker(folder: Path, name: str) -> None:
    (folder / name).unlink(missing_ok=True)
    sync_folder(folder)
