"""Where a batch's records stand: the metadata of each, and its payload.

Where a record ends is known only once its payload's size is, and that stands inside its metadata. So the size is
guessed, as `magnetar_wire.batch_codec.record_cutting` does: first that all payloads have the first one's size, then
that it stands as far before the metadata's end as in the first record. Whoever uses this holds the guess against what
the metadata says. This is the one thing that is done record by record; it takes a few dozen nanoseconds.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from magnetar_protos.entry_pb2 import SingleMessageMetadata
from magnetar_wire.batch_codec.uniform_head import PAYLOAD_SIZE_TAG
from magnetar_wire.limits import MAX_BATCH_METADATA_BYTES, MAX_RECORD_METADATA_BYTES

__all__ = ["Records", "find_records"]

_SIZE: Final = struct.Struct(">I")
_TAG: Final = PAYLOAD_SIZE_TAG[0]
_SMALLEST_RECORD: Final = 6


class Records(NamedTuple):
    """Of each record: where its metadata starts, where that ends and the payload starts, and where the payload ends."""

    starts: NDArray[np.int64]
    payloads: NDArray[np.int64]
    ends: NDArray[np.int64]


def find_records(batch: bytes, count: int) -> Records | None:
    """The records by a guess; None if it can't be right, or if they have more metadata than is allowed."""
    if not 0 < count <= len(batch) // _SMALLEST_RECORD:
        return None
    (first_bytes,) = _SIZE.unpack_from(batch)
    if first_bytes > MAX_RECORD_METADATA_BYTES:
        return None
    first = batch[4 : 4 + first_bytes]
    try:
        size = SingleMessageMetadata.FromString(first).payload_size
    except DecodeError:
        return None
    if not 0 <= size < len(batch):
        return None
    try:
        starts = _of_equal_size(batch, count, size)
        if starts is not None:
            ends = np.array([*starts[1:], len(batch) + 4], np.int64) - 4
            payloads = ends - size
        else:
            field = PAYLOAD_SIZE_TAG + _varint(size)
            after = len(first) - first.rfind(field) - len(field)
            found = _by_tail(batch, count, after)
            if found is None:
                return None
            starts, rest = found
            payloads = np.array(rest, np.int64)
            ends = np.array([*starts[1:], len(batch) + 4], np.int64) - 4
    except (struct.error, IndexError):
        return None
    records = Records(np.array(starts, np.int64), payloads, ends)
    widths = records.payloads - records.starts
    if widths.min() < 2 or widths.max() > MAX_RECORD_METADATA_BYTES:
        return None
    if int(widths.sum()) + 4 * count > MAX_BATCH_METADATA_BYTES:
        return None
    return records


def _of_equal_size(batch: bytes, count: int, size: int) -> list[int] | None:
    """Where each record's metadata starts, if all payloads have `size` bytes."""
    starts: list[int] = []
    add, size_at = starts.append, _SIZE.unpack_from
    at, step = 0, size + 4
    try:
        for _ in range(count):
            add(at + 4)
            at += size_at(batch, at)[0] + step
    except struct.error:  # behind the end: a payload had another size
        return None
    return starts if at == len(batch) else None


def _by_tail(batch: bytes, count: int, after: int) -> tuple[list[int], list[int]] | None:
    """Where each record's metadata starts and ends, if every payload size has `after` bytes behind it there."""
    starts: list[int] = []
    ends: list[int] = []
    size_at = _SIZE.unpack_from
    at = 0
    for _ in range(count):
        start = at + 4
        end = start + size_at(batch, at)[0]
        tail = end - after
        if batch[tail - 2] == _TAG:
            size = batch[tail - 1]
        elif batch[tail - 3] == _TAG:
            size = batch[tail - 2] & 0x7F | batch[tail - 1] << 7
        elif batch[tail - 4] == _TAG:
            size = batch[tail - 3] & 0x7F | (batch[tail - 2] & 0x7F) << 7 | batch[tail - 1] << 14
        else:
            return None
        starts.append(start)
        ends.append(end)
        at = end + size
    return (starts, ends) if at == len(batch) else None


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
