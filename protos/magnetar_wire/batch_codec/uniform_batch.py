"""The fastest codec of batches: all payloads have the same size, and the messages have nothing else than sequence ids.

Such a batch is a table: every record has the same length, and the same bytes except the payload and the sequence id.
The encoder joins the payloads with the record's head between them, in one call, and then writes the ids into it, byte
column by byte column. The decoder checks column by column that the heads are equal, and cuts.

Both functions return None for other batches, which the next path encodes or decodes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, Final

from magnetar_wire.batch_codec.metadata_limits import check_batch_metadata
from magnetar_wire.batch_codec.uniform_head import PAYLOAD_SIZE_TAG, SEQUENCE_ID_TAG, uniform_head
from magnetar_wire.messages import Messages
from magnetar_wire.varints import MAX_INT32, decode_column, encode_column, has_gaps, uint64_array, varint

_SIZE: Final = struct.Struct(">I")
# The records that one precompiled format cuts: enough to hide the cost of the call, few enough to compile in
# microseconds.
_CUT_AT_ONCE: Final = 64


def encode_uniform(messages: Messages) -> bytearray | None:
    """Encode a batch, or return None if it is not uniform."""
    if messages.keys or messages.properties or messages.ordering_keys or messages.event_times:
        return None
    if messages.null_keys or messages.compacted_out:
        return None
    payloads: Sequence[Any] = messages.payloads
    try:
        sizes = set(map(len, payloads))
    except TypeError:  # one payload is None
        return None
    if len(sizes) != 1:
        return None
    size = sizes.pop()
    if size > MAX_INT32:
        raise OverflowError(f"its payload has {size} bytes, above the limit of {MAX_INT32}")
    metadata = PAYLOAD_SIZE_TAG + varint(size)
    columns: list[bytes] = []
    ids: Sequence[Any] | None = messages.sequence_ids
    if ids is not None:
        encoded = None if has_gaps(ids) else encode_column(uint64_array(ids))
        if encoded is None:
            return None
        columns = encoded
        metadata += SEQUENCE_ID_TAG + bytes(len(columns))
    head = _SIZE.pack(len(metadata)) + metadata
    check_batch_metadata(len(head) * len(payloads))
    batch = bytearray(head).join([b"", *payloads])
    record = len(head) + size
    if len(batch) != record * len(payloads):
        raise TypeError("a payload must be bytes, or a buffer of single bytes")
    for column, offset in zip(columns, range(len(head) - len(columns), len(head)), strict=True):
        batch[offset::record] = column
    return batch


def decode_uniform(batch: bytes, count: int) -> Messages | None:
    """Decode a batch, or return None if it is not uniform."""
    head = uniform_head(batch, count)
    if head is None:
        return None
    head_bytes, payload_bytes, id_bytes = head
    record = head_bytes + payload_bytes
    for offset in range(head_bytes - id_bytes):
        column = batch[offset::record]
        if column.count(column[:1]) != count:
            return None
    sequence_ids = None
    if id_bytes:
        sequence_ids = decode_column([batch[offset::record] for offset in range(head_bytes - id_bytes, head_bytes)])
        if sequence_ids is None:
            return None
    return Messages(_cut(batch, count, head_bytes, payload_bytes), sequence_ids)


@lru_cache(maxsize=256)
def _cutter(head_bytes: int, payload_bytes: int, count: int) -> struct.Struct:
    return struct.Struct(f"{head_bytes}x{payload_bytes}s" * count)


def _cut(batch: bytes, count: int, head_bytes: int, payload_bytes: int) -> list[bytes]:
    """Return the payloads. A format for 64 records takes 15 ns per record, a slice for each takes 75."""
    rest = count % _CUT_AT_ONCE
    whole_bytes = (count - rest) * (head_bytes + payload_bytes)
    payloads: list[bytes] = []
    if whole_bytes:
        cut = _cutter(head_bytes, payload_bytes, _CUT_AT_ONCE).iter_unpack(memoryview(batch)[:whole_bytes])
        payloads.extend(chain.from_iterable(cut))
    if rest:  # batches that are limited by bytes have one count, and the records one size
        payloads.extend(_cutter(head_bytes, payload_bytes, rest).unpack_from(batch, whole_bytes))
    return payloads
