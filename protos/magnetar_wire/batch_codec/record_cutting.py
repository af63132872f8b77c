"""Cuts a batch into records by guessing the size of each payload.

The end of a record is known only from its payload's size, which is inside its metadata. The column decoder is fast
because it does not parse each record's metadata. So the sizes are guessed: first that all payloads have the first one's
size, which is true for the messages of most applications, then that the size is as far from the metadata's end as in
the first record. The caller compares every guess with the parsed metadata.

The records are copies, so limits are checked while cutting: at most the requested number of records, and at most the
metadata that a batch may have. If a guess exceeds them, the batch does not fit this path; the slow path finds out
whether it really exceeds them.
"""

from __future__ import annotations

import struct
from typing import Final

from magnetar_protos.entry_pb2 import SingleMessageMetadata
from magnetar_wire.limits import MAX_BATCH_METADATA_BYTES, MAX_RECORD_METADATA_BYTES
from magnetar_wire.varints import varint

_SIZE: Final = struct.Struct(">I")
_PAYLOAD_SIZE: Final = b"\x18"


class Unfit(Exception):
    """The batch can't be decoded by this path."""


def cut_records(batch: bytes, count: int) -> tuple[list[bytes], list[bytes], list[int]]:
    """Return each record's metadata, its payload, and the guessed size of the payload."""
    if not 0 < count <= len(batch) // 6:  # a record has at least a size and a payload size
        raise Unfit
    (first_bytes,) = _SIZE.unpack_from(batch)
    if first_bytes > MAX_RECORD_METADATA_BYTES:
        raise Unfit
    first = batch[4 : 4 + first_bytes]
    size = SingleMessageMetadata.FromString(first).payload_size
    if not 0 <= size < len(batch):
        raise Unfit
    size_field = _PAYLOAD_SIZE + varint(size)
    after = len(first) - first.rfind(size_field) - len(size_field)
    cut = None
    if len(batch) - count * size <= MAX_BATCH_METADATA_BYTES:
        cut = _cut_equal(batch, count, size)
    if cut is None:
        cut = _cut_by_tail(batch, count, after)
    # No record has more metadata than all together: mostly this one subtraction saves the maximum over all.
    besides = len(batch) - sum(cut[2])
    if besides > MAX_RECORD_METADATA_BYTES and max(map(len, cut[0])) > MAX_RECORD_METADATA_BYTES:
        raise Unfit
    return cut


def _cut_equal(batch: bytes, count: int, size: int) -> tuple[list[bytes], list[bytes], list[int]] | None:
    """Cut the batch into records with payloads of `size` bytes, or return None.

    A payload and the next record's size are read together: one call, while slicing and converting are three.
    """
    metadata: list[bytes] = []
    payloads: list[bytes] = []
    add_metadata, add_payload = metadata.append, payloads.append
    cut = struct.Struct(f">{size}sI").unpack_from
    at, last, step = 4, len(batch) - size, size + 4
    (metadata_bytes,) = _SIZE.unpack_from(batch)
    try:
        for _ in range(count - 1):
            end = at + metadata_bytes
            add_metadata(batch[at:end])
            payload, metadata_bytes = cut(batch, end)
            add_payload(payload)
            at = end + step
    except struct.error:  # after the end: a payload had another size
        return None
    if at + metadata_bytes != last:
        return None
    add_metadata(batch[at:last])
    add_payload(batch[last:])
    return metadata, payloads, [size] * count


def _cut_by_tail(batch: bytes, count: int, after: int) -> tuple[list[bytes], list[bytes], list[int]]:
    """Cut the batch into records whose payload size is followed by `after` bytes of metadata."""
    metadata: list[bytes] = []
    payloads: list[bytes] = []
    sizes: list[int] = []
    at, left = 0, MAX_BATCH_METADATA_BYTES
    for _ in range(count):
        start = at + 4
        end = start + _SIZE.unpack_from(batch, at)[0]
        left -= end - at
        if left < 0:
            raise Unfit
        head = batch[start:end]
        size = _size_before(head, len(head) - after)
        at = end + size
        metadata.append(head)
        payloads.append(batch[end:at])
        sizes.append(size)
    if at != len(batch):
        raise Unfit
    return metadata, payloads, sizes


def _size_before(head: bytes, end: int) -> int:
    """Return the payload size whose field ends at `end`. The size must have one to three bytes."""
    if head[end - 2] == _PAYLOAD_SIZE[0]:
        return head[end - 1]
    if head[end - 3] == _PAYLOAD_SIZE[0]:
        return head[end - 2] & 0x7F | head[end - 1] << 7
    if head[end - 4] == _PAYLOAD_SIZE[0]:
        return head[end - 3] & 0x7F | (head[end - 2] & 0x7F) << 7 | head[end - 1] << 14
    raise Unfit
