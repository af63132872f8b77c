"""What a forked process inherits of an open folder, and must neither keep nor use.

The lock (`durable_mark.py`) is the open file's, not the process's: a child that has the file too keeps the folder
locked when its parent is dead. RocksDB's threads are not in the child, so that it hangs there when it is closed or
dropped, and what it writes would get between the parent's own writes. So each open file and database is told in the
child that it `was_forked`, at once and before any other Python runs there.

At the end of a process RocksDB joins its threads, and a child would crash at that: it ends without the destructors of
C++ libraries, with the status that it ends with otherwise.
"""

from __future__ import annotations

import ctypes
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
noted: Final[weakref.WeakSet[Inherited]] = weakref.WeakSet()


def note(inherited: Inherited) -> None:
    """It is forgotten when it is collected."""
    with opening:
        noted.add(inherited)


def _tell() -> None:
    try:
        opened = list(noted)
        for inherited in opened:
            inherited.was_forked()
        if opened:
            _end_without_destructors()
    finally:
        opening.release()


def _end_without_destructors() -> None:
    """Have `exit` call `_exit` before the functions that were registered by now. Python has been finalized by then.

    Only glibc can. Elsewhere a child must end by `os._exit`, as those of `multiprocessing` do.
    """
    library = ctypes.CDLL(None)
    if hasattr(library, "on_exit"):
        library.on_exit(library._exit, None)


os.register_at_fork(before=opening.acquire, after_in_parent=opening.release, after_in_child=_tell)
