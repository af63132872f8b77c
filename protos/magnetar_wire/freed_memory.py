"""Keeps the C library from giving freed memory back to the system each time.

Frames and answers have a megabyte or so. glibc takes each from the system when it is made and gives it back when it is
freed, and the system clears every page anew. With 128 KiB entries that was 10 … 20 page faults for each, and 10 … 25 %
of the time that clients and bookies take.
"""

from __future__ import annotations

import ctypes
from typing import Final

__all__ = ["keep_freed_memory"]

# glibc's malloc.h.
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
# An entry of the largest size, with what is around it, still comes from what was freed.
_LARGEST_BYTES: Final = 16 << 20


def keep_freed_memory(keep_bytes: int = 64 << 20) -> None:
    """For the whole process: up to so much that is free stays with it, in each of glibc's arenas."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:
        return  # not glibc: whatever is there has ways of its own
    mallopt(_M_MMAP_THRESHOLD, _LARGEST_BYTES)
    mallopt(_M_TRIM_THRESHOLD, keep_bytes)
