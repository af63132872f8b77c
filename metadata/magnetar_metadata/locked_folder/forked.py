"""What a forked process inherits of an open folder, and must neither keep nor use.

The lock (`durable_mark.py`) is the open file's, not the process's: a child that has the file too keeps the folder
locked when its parent is dead. RocksDB's threads are not in the child, so that it hangs there when it is closed or
dropped, and what it writes would get between the parent's own writes. So each open file and database is told in the
child that it `was_forked`, at once and before any other Python runs there.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Final, Protocol


class Inherited(Protocol):
    """What must be told."""

    def was_forked(self) -> object:
        """In the child. Nothing here may wait for another thread: there is none."""


# Held while something is opened and noted here: a fork between the two would leave it in the child untold. The thread
# that forks may be in there itself, by a signal's handler.
opening: Final = threading.RLock()
_noted: Final[weakref.WeakSet[Inherited]] = weakref.WeakSet()


def note(inherited: Inherited) -> None:
    """It is forgotten when it is collected."""
    with opening:
        _noted.add(inherited)


def _tell() -> None:
    try:
        for inherited in list(_noted):
            inherited.was_forked()
    finally:
        opening.release()


os.register_at_fork(before=opening.acquire, after_in_parent=opening.release, after_in_child=_tell)
