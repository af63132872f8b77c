"""Settings of Python's garbage collector and of the C library's allocator, for processes that hold many objects.

**Garbage collection.** A broker's cache and its cursors are hundreds of thousands of objects that no cycle holds. With
Python's default thresholds the collector examines them again and again: that took 45 % of a broker's time at entries of
1 KB, unbatched, and a tenth of the time of the imports at a process' start.

**Freed memory.** Frames and answers have about a megabyte. glibc requests each from the kernel when it is allocated and
returns it when it is freed, and the kernel clears every page again. With entries of 128 KiB these were 10 … 20 page
faults for each entry, and 10 … 25 % of the time of clients and bookies.
"""

from __future__ import annotations

import ctypes
import gc
from typing import Final

__all__ = ["freeze_objects_and_raise_gc_thresholds", "keep_freed_memory", "raise_gc_thresholds"]

_THRESHOLDS: Final = (20_000, 50, 100)
# The numbers of these options in glibc's malloc.h.
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
# Larger allocations come from the kernel. An entry of the maximum size, in its frame, is below.
_LARGEST_BYTES: Final = 16 << 20


def raise_gc_thresholds() -> None:
    """Make the garbage collector run less often, in the whole process. Call it first, before the imports."""
    gc.set_threshold(*_THRESHOLDS)


def freeze_objects_and_raise_gc_thresholds() -> None:
    """Exclude all objects that exist now from garbage collection, and make it run less often.

    Call it once, when the objects that live as long as the process exist. It takes as long as a hundred messages.
    """
    gc.collect()
    gc.freeze()
    raise_gc_thresholds()


def keep_freed_memory(keep_bytes: int = 64 << 20) -> None:
    """Make each of glibc's arenas keep up to `keep_bytes` of freed memory, in the whole process."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:
        return  # The C library is not glibc.
    mallopt(_M_MMAP_THRESHOLD, _LARGEST_BYTES)
    mallopt(_M_TRIM_THRESHOLD, keep_bytes)
