"""Open folders in a forked child, which inherits them and must neither keep nor use them.

The lock (`durable_mark.py`) belongs to the open file, not to the process: a child that has the file, too, keeps the
folder locked after its parent has died. RocksDB's threads don't exist in the child, so closing or destroying a database
hangs there, and its writes would mix with the parent's. So `abandon_after_fork` is called in the child for each open
file and database, before any other Python code runs there.

When a process exits, RocksDB joins its threads, which would crash the child. So the child ends without the destructors
of C++ libraries, with its normal exit status.
"""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from typing import Final, Protocol


class Inherited(Protocol):
    """An open file or database that must be closed or abandoned in a forked child."""

    def abandon_after_fork(self) -> object:
        """Close or abandon it. Called in the child, where no other thread exists to wait for."""


# Held while a file is opened and registered: after a fork in between, the child would not know of it. A signal handler
# may fork while its thread holds the lock, so it is reentrant.
opening: Final = threading.RLock()
_registered: Final[weakref.WeakSet[Inherited]] = weakref.WeakSet()


def register(inherited: Inherited) -> None:
    """Call `abandon_after_fork` of this object in forked children, until it is garbage-collected."""
    with opening:
        _registered.add(inherited)


def _notify_forked() -> None:
    try:
        opened = list(_registered)
        for inherited in opened:
            inherited.abandon_after_fork()
        if opened:
            _end_without_destructors()
    finally:
        opening.release()


def _end_without_destructors() -> None:
    """Make `exit` call `_exit` before the functions that are registered so far. Python is finalized before that.

    Only glibc supports this. On other systems a child must end with `os._exit`, as children of `multiprocessing` do.
    """
    library = ctypes.CDLL(None)
    if hasattr(library, "on_exit"):
        library.on_exit(library._exit, None)


os.register_at_fork(before=opening.acquire, after_in_parent=opening.release, after_in_child=_notify_forked)
