"""Varints: single ones, and columns of them.

A column of ids is one long integer with a lane of eight bytes for each id. Shifting and masking that integer changes
all lanes in one call: a thousand ids take ten microseconds, while a loop takes three hundred.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

LANE: Final = 8
# A varint has seven bits per byte: eight bytes hold ids below 2 ** 56.
MAX_COLUMN_BYTES: Final = 8
MAX_INT32: Final = 2**31 - 1
MAX_UINT64: Final = 2**64 - 1

_CONTINUED: Final = bytes(byte | 0x80 for byte in range(256))
_CONTINUED_BYTES: Final = bytes(range(0x80, 0x100))


def varint(value: int) -> bytes:
    """Encode one unsigned varint."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def varint_bytes(value: int) -> int:
    """Return the number of bytes of the varint of `value`."""
    return (max(value.bit_length(), 1) + 6) // 7


def has_gaps(values: Sequence[int | None]) -> bool:
    """Return whether any value is None. An array has none, and checking it would take longer than encoding it."""
    return not isinstance(values, array) and None in values


def uint64_array(values: Sequence[int]) -> array[int]:
    """Return `values` as an array of unsigned 64-bit integers. Raises OverflowError or TypeError for other values."""
    return values if isinstance(values, array) and values.typecode == "Q" else array("Q", values)


def encode_column(values: array[int]) -> list[bytes] | None:
    """Encode varints of one length as byte columns, the first bytes of all first. Return None if the lengths differ."""
    count = len(values)
    length = varint_bytes(values[-1])
    if length > MAX_COLUMN_BYTES:
        return None
    lanes = int.from_bytes(_little(values), "little")
    if lanes & _lanes_of(MAX_UINT64 - ((1 << 7 * length) - 1), count):
        return None  # some are longer
    sevens = _lanes_of(0x7F, count)
    spread = 0
    for index in range(length):
        spread |= ((lanes >> 7 * index) & sevens) << 8 * index
    data = spread.to_bytes(LANE * count, "little")
    columns = [data[index::LANE] for index in range(length)]
    if length > 1 and b"\0" in columns[-1]:
        return None  # some are shorter
    return [column.translate(_CONTINUED) for column in columns[:-1]] + columns[-1:]


def decode_column(columns: Sequence[bytes]) -> array[int] | None:
    """Decode byte columns of varints. Return None if some of the varints are shorter or longer than `columns`."""
    if not 0 < len(columns) <= MAX_COLUMN_BYTES or not columns[-1].isascii():
        return None
    if any(column.translate(None, _CONTINUED_BYTES) for column in columns[:-1]):
        return None
    count = len(columns[0])
    data = bytearray(LANE * count)
    for index, column in enumerate(columns):
        data[index::LANE] = column
    spread = int.from_bytes(data, "little")
    sevens = _lanes_of(0x7F, count)
    lanes = 0
    for index in range(len(columns)):
        lanes |= ((spread >> 8 * index) & sevens) << 7 * index
    values = array("Q")
    values.frombytes(lanes.to_bytes(LANE * count, "little"))
    if sys.byteorder == "big":
        values.byteswap()
    return values


@lru_cache(maxsize=64)
def _lanes_of(value: int, count: int) -> int:
    """Return `value` in each of `count` lanes. It is cached, since most batches have the same size: computing it takes
    6 µs.
    """
    return int.from_bytes(value.to_bytes(LANE, "little") * count, "little")


def _little(values: array[int]) -> bytes:
    if sys.byteorder == "little":
        return values.tobytes()
    swapped = values[:]
    swapped.byteswap()
    return swapped.tobytes()
