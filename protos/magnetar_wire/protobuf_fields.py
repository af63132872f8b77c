"""Protobuf fields of bytes, encoded without protobuf objects.

An entry in a protobuf object is copied into it, again when that object becomes part of another one, and again when all
of it is encoded. Entries are nearly all of the bytes that are sent, so the entries of frames and of answers to reads
are joined with the other fields in a single copy instead. With entries of 128 KiB that saves a third of a sender's
time. A protobuf message is the concatenation of its fields, in any order, so the other fields are encoded as usual.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Final

from magnetar_wire.varints import varint

__all__ = ["encode_bytes_fields", "encode_field_head"]

_LENGTH_DELIMITED: Final = 2
_MAX_CACHED_SIZES: Final = 4096


class _FieldHeads(dict[int, bytes]):
    """The bytes in front of one field's value, by the value's size. A cache, since most sizes occur again: a size that
    it has is looked up in C."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self._tag = varint(number << 3 | _LENGTH_DELIMITED)

    def __missing__(self, size: int) -> bytes:
        if len(self) >= _MAX_CACHED_SIZES:
            self.clear()
        head = self[size] = self._tag + varint(size)
        return head


@cache
def _get_heads(number: int) -> _FieldHeads:
    return _FieldHeads(number)


def encode_field_head(number: int, size: int) -> bytes:
    """Return the bytes in front of a field's value of `size` bytes."""
    return _get_heads(number)[size]


def encode_bytes_fields(number: int, values: Sequence[bytes]) -> list[bytes]:
    """Return the parts of a repeated field, to be joined."""
    parts = [b""] * (2 * len(values))
    parts[::2] = map(_get_heads(number).__getitem__, map(len, values))
    parts[1::2] = values
    return parts
