"""Protobuf fields of bytes, put together by hand.

An entry that goes into a protobuf object is copied there, once more when that object becomes part of another, and once
more when all of it is serialised. Entries are nearly all of what is sent, so those of frames and of answers to reads
are joined with what stands around them in one copy instead: with 128 KiB entries a third of what a sender takes. A
protobuf message is the concatenation of its fields, in any order, so the rest is serialised as ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial

from magnetar_wire._varints import varint

__all__ = ["encode_bytes_fields", "encode_field_head"]

_LENGTH_DELIMITED = 2


@lru_cache(maxsize=4096)
def encode_field_head(number: int, size: int) -> bytes:
    """What stands before the bytes of a field."""
    return varint(number << 3 | _LENGTH_DELIMITED) + varint(size)


def encode_bytes_fields(number: int, blobs: Sequence[bytes]) -> list[bytes]:
    """The elements of a repeated field, to be joined."""
    parts = [b""] * (2 * len(blobs))
    parts[::2] = map(partial(encode_field_head, number), map(len, blobs))
    parts[1::2] = blobs
    return parts
