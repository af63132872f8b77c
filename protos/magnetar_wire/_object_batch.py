"""Batches read message by message, with a protobuf object for each: the slow path, for any batch that is none of the
others', and the one that says what is wrong with a bad one."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from typing import Final, TypeVar

from google.protobuf.message import DecodeError

from magnetar_protos.entry_pb2 import MessageMetadata, SingleMessageMetadata
from magnetar_wire._column_batch import bytes_key
from magnetar_wire.errors import MalformedEntry
from magnetar_wire.messages import Messages

T = TypeVar("T")

_SIZE: Final = struct.Struct(">I")
_SMALLEST_RECORD: Final = _SIZE.size + 2  # its size, and a payload size of 0


def decode_objects(batch: bytes, count: int) -> Messages:
    if not 0 < count <= len(batch) // _SMALLEST_RECORD:
        raise MalformedEntry(f"the batch is said to have {count} messages, and has {len(batch)} bytes")
    heads: list[SingleMessageMetadata] = []
    payloads: list[bytes | None] = []
    at = 0
    for index in range(count):
        head, at = _read_head(batch, at, index)
        end = at + head.payload_size
        if not at <= end <= len(batch):
            raise MalformedEntry(
                f"message {index} is said to have {head.payload_size} bytes, and {len(batch) - at} are left"
            )
        payloads.append(None if head.null_value else batch[at:end])
        heads.append(head)
        at = end
    if at != len(batch):
        raise MalformedEntry(f"{len(batch) - at} bytes are left behind the batch's last message")
    return Messages(
        payloads,
        _sequence_ids(heads),
        keys=_column([read_key(head) for head in heads]),
        ordering_keys=_column([head.ordering_key if head.HasField("ordering_key") else None for head in heads]),
        properties=[read_properties(head) for head in heads] if any(head.properties for head in heads) else None,
        event_times=_column([head.event_time for head in heads]),
        null_keys=_column([head.null_partition_key for head in heads]),
        compacted_out=_column([head.compacted_out for head in heads]),
    )


def _read_head(batch: bytes, at: int, index: int) -> tuple[SingleMessageMetadata, int]:
    left = len(batch) - at - _SIZE.size
    if left < 0:
        raise MalformedEntry(f"the batch ends before message {index}")
    (size,) = _SIZE.unpack_from(batch, at)
    if size > left:
        raise MalformedEntry(f"message {index}'s metadata is said to be {size} bytes, and {left} are left")
    at += _SIZE.size
    try:
        head = SingleMessageMetadata.FromString(batch[at : at + size])
    except DecodeError as error:
        raise MalformedEntry(f"message {index}'s metadata can't be read: {error}") from None
    if not head.HasField("payload_size"):
        raise MalformedEntry(f"message {index}'s metadata has no payload_size")
    return head, at + size


def _column(values: list[T]) -> list[T] | None:
    """None in place of a column that says nothing of any message."""
    return values if any(value is not None and value is not False and value != 0 for value in values) else None


def _sequence_ids(heads: list[SingleMessageMetadata]) -> Sequence[int | None] | None:
    ids = [head.sequence_id if head.HasField("sequence_id") else None for head in heads]
    present = [value for value in ids if value is not None]
    if len(present) == len(ids):
        return array("Q", present)
    return ids if present else None


def read_key(head: SingleMessageMetadata | MessageMetadata) -> str | bytes | None:
    if not head.HasField("partition_key"):
        return None
    return bytes_key(head.partition_key) if head.partition_key_b64_encoded else head.partition_key


def read_properties(head: SingleMessageMetadata | MessageMetadata) -> dict[str, str]:
    for pair in head.properties:
        if not (pair.HasField("key") and pair.HasField("value")):
            raise MalformedEntry("a property lacks its name or its value")
    return {pair.key: pair.value for pair in head.properties}
