"""Cuts a batch into records by guessing the size of each payload.

The end of a record is known only from its payload's size, which is inside its metadata. The column decoders are fast
because they do not parse each record's metadata. So the sizes are guessed: first that all payloads have the first one's
size, which is true for the messages of most applications, then that the size is as far from the metadata's end as in
the first record. The caller compares every guess with the parsed metadata.

`cut_records` copies the records, for the column decoder. The Spark connector needs only where they start and end
(magnetar_spark/arrow/record_bounds.py), and guesses with the same functions.

Limits are checked before records are copied: at most the requested number of records, and at most the metadata that a
batch may have. If a guess exceeds them, the batch does not fit this path; the slow path finds out whether it really
exceeds them.
"""

from __future__ import annotations

import struct
from itertools import islice
from typing import Final

from magnetar_protos.entry_pb2 import SingleMessageMetadata
from magnetar_wire.batch_codec.uniform_head import PAYLOAD_SIZE_TAG
from magnetar_wire.limits import MAX_BATCH_METADATA_BYTES, MAX_RECORD_METADATA_BYTES
from magnetar_wire.varints import varint

__all__ = ["Unfit", "cut_records", "find_records_by_tail", "guess_payload_size"]

_SIZE: Final = struct.Struct(">I")
_TAG: Final = PAYLOAD_SIZE_TAG[0]
# How many records are found between two checks of the limit on their metadata.
_RECORDS_PER_CHECK: Final = 4_096
_MIN_RECORD_BYTES: Final = 6  # its size, and a payload size


class Unfit(Exception):
    """The batch can't be decoded by this path."""


def cut_records(batch: bytes, count: int) -> tuple[list[bytes], list[bytes], list[int]]:
    """Return each record's metadata, its payload, and the guessed size of the payload. Raises Unfit, DecodeError,
    IndexError and struct.error if the guess is wrong."""
    size, tail = guess_payload_size(batch, count)
    cut = None
    if len(batch) - count * size <= MAX_BATCH_METADATA_BYTES:
        cut = _cut_equal(batch, count, size)
    if cut is None:
        cut = _cut_by_tail(batch, count, tail)
    # No record has more metadata than all together: mostly this one subtraction saves the maximum over all.
    besides = len(batch) - sum(cut[2])
    if besides > MAX_RECORD_METADATA_BYTES and max(map(len, cut[0])) > MAX_RECORD_METADATA_BYTES:
        raise Unfit
    return cut


def guess_payload_size(batch: bytes, count: int) -> tuple[int, int]:
    """Return the first record's payload size, and the size of its tail: the metadata after the payload size. Raises
    Unfit and DecodeError."""
    if not 0 < count <= len(batch) // _MIN_RECORD_BYTES:
        raise Unfit
    (first_bytes,) = _SIZE.unpack_from(batch)
    if first_bytes > MAX_RECORD_METADATA_BYTES:
        raise Unfit
    first = batch[4 : 4 + first_bytes]
    size = SingleMessageMetadata.FromString(first).payload_size
    if not 0 <= size < len(batch):
        raise Unfit
    field = PAYLOAD_SIZE_TAG + varint(size)
    return size, len(first) - first.rfind(field) - len(field)


def find_records_by_tail(batch: bytes, count: int, tail: int) -> tuple[list[int], list[int]]:
    """Return where each record's metadata starts and ends if its last `tail` bytes follow the payload size, which must
    have one to three bytes. Raises Unfit, IndexError and struct.error."""
    starts: list[int] = []
    ends: list[int] = []
    add_start, add_end, size_at = starts.append, ends.append, _SIZE.unpack_from
    # How far before the metadata's end are the payload size's last bytes, and the tag before them.
    one, two, three, four = range(tail + 1, tail + 5)
    at = 0
    left = MAX_BATCH_METADATA_BYTES
    for begin in range(0, count, _RECORDS_PER_CHECK):
        for _ in range(min(_RECORDS_PER_CHECK, count - begin)):
            (metadata_bytes,) = size_at(batch, at)
            at += 4
            add_start(at)
            end = at + metadata_bytes
            add_end(end)
            if batch[end - two] == _TAG:
                at = end + batch[end - one]
            elif batch[end - three] == _TAG:
                at = end + (batch[end - two] & 0x7F | batch[end - one] << 7)
            elif batch[end - four] == _TAG:
                at = end + (batch[end - three] & 0x7F | (batch[end - two] & 0x7F) << 7 | batch[end - one] << 14)
            else:
                raise Unfit
        left -= sum(ends[begin:]) - sum(starts[begin:]) + 4 * (len(starts) - begin)
        if left < 0:
            raise Unfit
    if at != len(batch):
        raise Unfit
    return starts, ends


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


def _cut_by_tail(batch: bytes, count: int, tail: int) -> tuple[list[bytes], list[bytes], list[int]]:
    starts, ends = find_records_by_tail(batch, count, tail)
    metadata = [batch[start:end] for start, end in zip(starts, ends, strict=True)]
    starts.append(len(batch) + 4)
    payloads = [batch[end : after - 4] for end, after in zip(ends, islice(starts, 1, None), strict=True)]
    return metadata, payloads, list(map(len, payloads))
