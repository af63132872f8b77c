"""The head of a uniform batch's records, read from the first record.

A decoder of uniform batches reads it first, and then checks that every record's head equals the first one's:
`uniform_batch.py` in plain Python, the Spark connector with numpy.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from magnetar_wire.batch_codec.metadata_limits import check_batch_metadata

__all__ = ["PAYLOAD_SIZE_TAG", "SEQUENCE_ID_TAG", "UniformHead", "uniform_head"]

PAYLOAD_SIZE_TAG: Final = b"\x18"
SEQUENCE_ID_TAG: Final = b"\x40"
_SIZE: Final = struct.Struct(">I")


class UniformHead(NamedTuple):
    """The sizes of each record's parts: the head, which ends with the sequence id's varint, and the payload."""

    head_bytes: int
    payload_bytes: int
    # 0: there is no sequence id.
    id_bytes: int


def uniform_head(batch: bytes | memoryview, count: int) -> UniformHead | None:
    """Return the head of a batch that may be a table of `count` records; None if it is not. Raises `TooLarge`."""
    head = _read_head(batch)
    if head is None or (head.head_bytes + head.payload_bytes) * count != len(batch):
        return None
    check_batch_metadata(head.head_bytes * count)
    return head


def _read_head(batch: bytes | memoryview) -> UniformHead | None:
    if len(batch) < 6:
        return None
    (metadata_bytes,) = _SIZE.unpack_from(batch)
    metadata = batch[4 : 4 + metadata_bytes]
    if not 2 <= len(metadata) == metadata_bytes <= 16 or metadata[:1] != PAYLOAD_SIZE_TAG:
        return None
    payload_bytes = shift = 0
    for index in range(1, min(6, metadata_bytes)):
        payload_bytes |= (metadata[index] & 0x7F) << shift
        shift += 7
        if metadata[index] < 0x80:
            break
    else:
        return None
    rest = metadata[index + 1 :]
    if rest and (len(rest) < 2 or rest[:1] != SEQUENCE_ID_TAG):
        return None
    return UniformHead(4 + metadata_bytes, payload_bytes, max(0, len(rest) - 1))
