"""Finds where the metadata and the payload of each record of a batch start and end.

The end of a record is known only from its payload's size, which is inside its metadata. So the size is guessed, as in
`magnetar_wire.batch_codec.record_cutting`: first that all payloads have the first one's size, then that the size is as
far from the metadata's end as in the first record. The caller compares every guess with the metadata. This is the only
loop over records; it takes a few dozen nanoseconds for each.
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
from magnetar_wire.varints import varint

__all__ = ["RecordBounds", "find_record_bounds"]

_SIZE: Final = struct.Struct(">I")
_TAG: Final = PAYLOAD_SIZE_TAG[0]
_MIN_RECORD_BYTES: Final = 6


class RecordBounds(NamedTuple):
    """For each record: the start of its metadata, the end of that and start of the payload, the end of the payload."""

    starts: NDArray[np.int64]
    payloads: NDArray[np.int64]
    ends: NDArray[np.int64]


def find_record_bounds(batch: bytes, count: int) -> RecordBounds | None:
    """Return guessed bounds; None if the guess is wrong, or if the records have more metadata than is allowed."""
    if not 0 < count <= len(batch) // _MIN_RECORD_BYTES:
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
        starts = _find_by_equal_size(batch, count, size)
        if starts is not None:
            ends = np.array([*starts[1:], len(batch) + 4], np.int64) - 4
            payloads = ends - size
        else:
            field = PAYLOAD_SIZE_TAG + varint(size)
            after = len(first) - first.rfind(field) - len(field)
            found = _find_by_tail(batch, count, after)
            if found is None:
                return None
            starts, rest = found
            payloads = np.array(rest, np.int64)
            ends = np.array([*starts[1:], len(batch) + 4], np.int64) - 4
    except (struct.error, IndexError):
        return None
    bounds = RecordBounds(np.array(starts, np.int64), payloads, ends)
    widths = bounds.payloads - bounds.starts
    if widths.min() < 2 or widths.max() > MAX_RECORD_METADATA_BYTES:
        return None
    if int(widths.sum()) + 4 * count > MAX_BATCH_METADATA_BYTES:
        return None
    return bounds


def _find_by_equal_size(batch: bytes, count: int, size: int) -> list[int] | None:
    """Return where the metadata of each record starts if all payloads have `size` bytes, else None."""
    starts: list[int] = []
    add, size_at = starts.append, _SIZE.unpack_from
    at, step = 0, size + 4
    try:
        for _ in range(count):
            add(at + 4)
            at += size_at(batch, at)[0] + step
    except struct.error:  # after the end: a payload had another size
        return None
    return starts if at == len(batch) else None


def _find_by_tail(batch: bytes, count: int, after: int) -> tuple[list[int], list[int]] | None:
    """Return where the metadata of each record starts and ends if `after` bytes of it follow every payload size."""
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
