"""Decodes the varints of a thousand messages at a time, eight bytes of each in one word.

A word's lowest byte is the varint's first one. Varints of more than eight bytes, numbers from 2 ** 56 on, are not
supported: such a batch is decoded message by message.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "UnsupportedBatch",
    "Words",
    "count_nonzero",
    "decode_equal_varints",
    "decode_varints",
    "locate_delimited",
    "masks",
    "view_words",
]

Words: TypeAlias = NDArray[np.uint64]

_CONTINUED: Final = 0x8080808080808080
_ALL_CONTINUED: Final = np.uint64(_CONTINUED)
_BYTE: Final = np.uint64(0xFF)
_WORD: Final = np.dtype("<u8")
_UPPER_BYTES: Final = np.uint64(0x7F007F007F007F00)
_UPPER_PAIRS: Final = np.uint64(0x3FFF00003FFF0000)
_UPPER_HALF: Final = np.uint64(0x0FFFFFFF00000000)
_ONE, _TWO, _THREE, _FOUR, _FIFTEEN = map(np.uint64, (1, 2, 3, 4, 15))

# The masks of the lowest 0 … 8 bytes of a word, and of the continuation bits in them.
masks: Final[Words] = np.array([(1 << 8 * length) - 1 for length in range(9)], np.uint64)
_continued: Final[Words] = masks & _ALL_CONTINUED
# Faster than any(), which takes a microsecond for a thousand flags.
count_nonzero: Final = np.count_nonzero


class UnsupportedBatch(Exception):
    """The batch can't be decoded by this path. A slower one decodes it, or finds the error in it."""


def view_words(buffer: bytes | memoryview, offset: int, count: int, stride: int) -> Words:
    """Return the eight bytes at `offset`, at `offset + stride` …; the last ones must end within the buffer, too."""
    return np.ndarray((count,), _WORD, buffer, offset, (stride,))


def decode_equal_varints(words: Words, size: int) -> Words | None:
    """Return the numbers if each is a varint of `size` bytes, else None. The rest of a word is ignored."""
    words = words & masks[size]
    continued = _continued[size - 1]
    if count_nonzero((words & _ALL_CONTINUED) != continued):
        return None
    words ^= continued
    return _squeeze(words, size)


def decode_varints(words: Words) -> tuple[Words, Any] | None:
    """Return the numbers, and the size of each in bytes; None if one has more than eight."""
    ends = ~words & _ALL_CONTINUED
    lowest = ends & (~ends + np.uint64(1))
    if not lowest.all():
        return None
    first = int(lowest[0]).bit_length() >> 3
    if (lowest == lowest[0]).all():
        numbers = decode_equal_varints(words, first)
        return None if numbers is None else (numbers, first)
    sizes = (np.frexp(lowest.astype(np.float64))[1] >> 3).astype(np.int64)
    return _squeeze(words & masks[sizes] & ~_ALL_CONTINUED, 8), sizes


def locate_delimited(words: Words, at: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return where the contents of the length-delimited fields start and end whose tags are at `at`.

    `words` has the word at every byte. Lengths have at most seven bytes. Raises UnsupportedBatch.
    """
    lengths = words[at] >> np.uint64(8)
    sizes: Any = 1
    if (lengths & _BYTE >= np.uint64(0x80)).any():
        decoded = decode_varints(lengths)
        if decoded is None:
            raise UnsupportedBatch
        lengths, sizes = decoded
    else:
        lengths = lengths & _BYTE
    starts = at + (1 + sizes)
    return starts, starts + lengths.astype(np.int64)


def _squeeze(words: Words, size: int) -> Words:
    """Join the seven bits of each byte, in place: first in pairs of bytes, then in groups of four, then of eight.

    The upper half of a pair moves from x << 8 to x << 7 by subtracting x << 7, that of a group of four from x << 16 to
    x << 14 by subtracting x << 14 three times.
    """
    if size > 1:
        upper = words & _UPPER_BYTES
        upper >>= _ONE
        words -= upper
    if size > 2:
        upper = words & _UPPER_PAIRS
        upper >>= _TWO
        upper *= _THREE
        words -= upper
    if size > 4:
        upper = words & _UPPER_HALF
        upper >>= _FOUR
        upper *= _FIFTEEN
        words -= upper
    return words
