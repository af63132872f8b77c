"""Varints of a thousand messages at a time, eight bytes of each in one word.

A word's lowest byte is the varint's first. Varints of more than eight bytes, numbers from 2 ** 56 on, are left to
whoever reads message by message.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from magnetar_spark.arrow.unfit import Unfit

__all__ = ["Words", "count_nonzero", "masks", "read_delimited", "read_varints", "varints_of_length", "words_at"]

Words: TypeAlias = NDArray[np.uint64]

_CONTINUED: Final = 0x8080808080808080
_ALL_CONTINUED: Final = np.uint64(_CONTINUED)
_BYTE: Final = np.uint64(0xFF)
_WORD: Final = np.dtype("<u8")
_UPPER_BYTES: Final = np.uint64(0x7F007F007F007F00)
_UPPER_PAIRS: Final = np.uint64(0x3FFF00003FFF0000)
_UPPER_HALF: Final = np.uint64(0x0FFFFFFF00000000)
_ONE, _TWO, _THREE, _FOUR, _FIFTEEN = map(np.uint64, (1, 2, 3, 4, 15))

# To the lowest so many bytes; and of those, what says that a varint goes on.
masks: Final[Words] = np.array([(1 << 8 * length) - 1 for length in range(9)], np.uint64)
_continued: Final[Words] = masks & _ALL_CONTINUED
# Quicker than any(), which a thousand flags take a microsecond for.
count_nonzero: Final = np.count_nonzero


def words_at(buffer: bytes | memoryview, offset: int, count: int, stride: int) -> Words:
    """The eight bytes at `offset`, at `offset + stride` …; the last ones, too, must end within the buffer."""
    return np.ndarray((count,), _WORD, buffer, offset, (stride,))


def varints_of_length(words: Words, size: int) -> Words | None:
    """The numbers, if each is a varint of `size` bytes; what follows those in its word does not matter."""
    words = words & masks[size]
    continued = _continued[size - 1]
    if count_nonzero((words & _ALL_CONTINUED) != continued):
        return None
    words ^= continued
    return _squeeze(words, size)


def read_varints(words: Words) -> tuple[Words, Any] | None:
    """The numbers, and how many bytes each has; None if one has more than eight."""
    ends = ~words & _ALL_CONTINUED
    lowest = ends & (~ends + np.uint64(1))
    if not lowest.all():
        return None
    first = int(lowest[0]).bit_length() >> 3
    if (lowest == lowest[0]).all():
        numbers = varints_of_length(words, first)
        return None if numbers is None else (numbers, first)
    sizes = (np.frexp(lowest.astype(np.float64))[1] >> 3).astype(np.int64)
    return _squeeze(words & masks[sizes] & ~_ALL_CONTINUED, 8), sizes


def read_delimited(words: Words, at: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where the bytes of the fields whose tags are at `at` start and end, as they say themselves.

    `words` are those at every byte. A length of more than seven bytes is none here.
    """
    lengths = words[at] >> np.uint64(8)
    sizes: Any = 1
    if (lengths & _BYTE >= np.uint64(0x80)).any():
        read = read_varints(lengths)
        if read is None:
            raise Unfit
        lengths, sizes = read
    else:
        lengths = lengths & _BYTE
    starts = at + (1 + sizes)
    return starts, starts + lengths.astype(np.int64)


def _squeeze(words: Words, size: int) -> Words:
    """Seven bits of each byte, side by side, in place: by pairs of bytes, then of pairs, then of those. To move the
    upper half of a pair, x << 8, down to x << 7 is to take x << 7 away; of the next, x << 14 three times.
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
