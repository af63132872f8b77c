"""A batch cut into records, by guess: where each one's metadata ends, and its payload.

Where a record ends is known only once its payload's size is, and that stands inside its metadata. Parsing the metadata
to get at it is what the column decoder saves. So the size is guessed: first that all payloads have the first one's
size, which holds for most applications' messages, then that it stands as far before the metadata's end as in the first
record. Whoever uses this holds every guess against what the metadata says.

What is cut is copied, so limits are kept while cutting: as many records as were asked for, and no more metadata than a
batch may have. What is above by a guess does not fit; whether it is above in truth the slow path says.
"""

from __future__ import annotations

import struct
from typing import Final

from magnetar_protos.entry_pb2 import SingleMessageMetadata
from magnetar_wire._varints import varint
from magnetar_wire.limits import MAX_BATCH_METADATA_BYTES, MAX_RECORD_METADATA_BYTES

_SIZE: Final = struct.Struct(">I")
_PAYLOAD_SIZE: Final = b"\x18"


class Unfit(Exception):
    """The batch can't be read this way."""


def cut_records(batch: bytes, count: int) -> tuple[list[bytes], list[bytes], list[int]]:
    """Each record's metadata, its payload, and the payload's size by which they were cut: a guess."""
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
    # No record has more than all have together: nearly always one subtraction saves a look at each.
    besides = len(batch) - sum(cut[2])
    if besides > MAX_RECORD_METADATA_BYTES and max(map(len, cut[0])) > MAX_RECORD_METADATA_BYTES:
        raise Unfit
    return cut


def _cut_equal(batch: bytes, count: int, size: int) -> tuple[list[bytes], list[bytes], list[int]] | None:
    """The records, if all payloads have `size` bytes. A payload and the next record's size are cut out together: one
    call where slicing and converting are three."""
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
    except struct.error:  # behind the end: a payload had another size
        return None
    if at + metadata_bytes != last:
        return None
    add_metadata(batch[at:last])
    add_payload(batch[last:])
    return metadata, payloads, [size] * count


def _cut_by_tail(batch: bytes, count: int, after: int) -> tuple[list[bytes], list[bytes], list[int]]:
    """The records, if every payload size has as many bytes behind it as in the first record."""
    metadata: list[bytes] = []
    payloads: list[bytes] = []
    sizes: list[int] = []
    at, room = 0, MAX_BATCH_METADATA_BYTES
    for _ in range(count):
        start = at + 4
        end = start + _SIZE.unpack_from(batch, at)[0]
        room -= end - at
        if room < 0:
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
    """The payload size whose field ends at `end`, if it has one to three bytes."""
    if head[end - 2] == _PAYLOAD_SIZE[0]:
        return head[end - 1]
    if head[end - 3] == _PAYLOAD_SIZE[0]:
        return head[end - 2] & 0x7F | head[end - 1] << 7
    if head[end - 4] == _PAYLOAD_SIZE[0]:
        return head[end - 3] & 0x7F | (head[end - 2] & 0x7F) << 7 | head[end - 1] << 14
    raise Unfit
