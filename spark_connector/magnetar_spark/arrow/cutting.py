"""Bytes cut out of a buffer, a thousand pieces at a time.

Arrow does it: a buffer with the places at which it is cut is an array already, of what is wanted and what is between by
turns, and taking every other element of that copies each piece once.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

__all__ = ["cut"]


def cut(
    buffer: Any, starts: NDArray[np.int64], ends: NDArray[np.int64], present: NDArray[np.bool_] | None = None
) -> Any:
    """What stands from each start to its end, as a binary array that is null where it is not `present`.

    Starts and ends rise, and no piece overlaps the next.
    """
    count = len(starts)
    offsets = np.empty(2 * count + 1, np.int32)
    offsets[0] = 0
    offsets[1::2] = starts
    offsets[2::2] = ends
    mixed = pa.Array.from_buffers(pa.binary(), 2 * count, [None, pa.py_buffer(offsets), buffer])
    pieces = mixed.take(_every_other(max(count - 1, 1).bit_length())[:count])
    if present is None:
        return pieces
    bits = np.packbits(present, bitorder="little")
    return pa.Array.from_buffers(pa.binary(), count, [pa.py_buffer(bits), *pieces.buffers()[1:]])


@lru_cache(maxsize=24)
def _every_other(bits: int) -> Any:
    return pa.array(np.arange(1, 2 << bits, 2, dtype=np.int32))
