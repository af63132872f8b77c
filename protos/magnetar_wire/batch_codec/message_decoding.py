"""The decoder of batches message by message, with a protobuf object for each. It is the slow path for batches that no
other path supports, and it finds the error in a malformed batch.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator, Sequence
from typing import Any, Final

from google.protobuf.message import DecodeError

from magnetar_protos.entry_pb2 import MessageMetadata, SingleMessageMetadata
from magnetar_wire.batch_codec.column_decoding import bytes_key
from magnetar_wire.batch_codec.metadata_limits import check_batch_metadata, check_record_metadata
from magnetar_wire.errors import MalformedEntry
from magnetar_wire.limits import MAX_BATCH_METADATA_BYTES
from magnetar_wire.messages import Messages

_SIZE: Final = struct.Struct(">I")
_SMALLEST_RECORD: Final = _SIZE.size + 2  # its size, and a payload size of 0


def decode_objects(batch: bytes, count: int) -> Messages:
    """Decode a batch. Raises MalformedEntry and TooLarge."""
    if not 0 < count <= len(batch) // _SMALLEST_RECORD:
        raise MalformedEntry(f"the batch is too short: {count} messages are declared, and it has {len(batch)} bytes")
    if len(batch) > MAX_BATCH_METADATA_BYTES:  # read twice, so that nothing is stored before the whole batch is checked
        check_batch_metadata(len(batch) - sum(end - at for _, at, end in _records(batch, count)))
    # The values of each message. Its protobuf object takes six times as much memory.
    rows = [_row(head, batch[at:end]) for head, at, end in _records(batch, count)]
    payloads, ids, keys, ordering_keys, properties, event_times, null_keys, compacted_out = zip(*rows, strict=True)
    return Messages(
        list(payloads),
        _sequence_ids(ids),
        keys=_column(keys),
        ordering_keys=_column(ordering_keys),
        properties=[each or {} for each in properties] if any(properties) else None,
        event_times=_column(event_times),
        null_keys=_column(null_keys),
        compacted_out=_column(compacted_out),
    )


def _records(batch: bytes, count: int) -> Iterator[tuple[SingleMessageMetadata, int, int]]:
    """Return each message's metadata, and the start and the end of its payload."""
    at = 0
    for index in range(count):
        head, at = _read_head(batch, at, index)
        end = at + head.payload_size
        if not at <= end <= len(batch):
            raise MalformedEntry(
                f"message {index} declares a payload of {head.payload_size} bytes, and {len(batch) - at} "
                "are left in the batch"
            )
        yield head, at, end
        at = end
    if at != len(batch):
        raise MalformedEntry(f"the batch has {len(batch) - at} bytes after its last message")


def _row(head: SingleMessageMetadata, payload: bytes) -> tuple[Any, ...]:
    return (
        None if head.null_value else payload,
        head.sequence_id if head.HasField("sequence_id") else None,
        read_key(head),
        head.ordering_key if head.HasField("ordering_key") else None,
        read_properties(head) if head.properties else None,
        head.event_time,
        head.null_partition_key,
        head.compacted_out,
    )


def _read_head(batch: bytes, at: int, index: int) -> tuple[SingleMessageMetadata, int]:
    left = len(batch) - at - _SIZE.size
    if left < 0:
        raise MalformedEntry(f"the batch ends before message {index}")
    (size,) = _SIZE.unpack_from(batch, at)
    if size > left:
        raise MalformedEntry(f"message {index} declares {size} bytes of metadata, and {left} are left in the batch")
    check_record_metadata(size)
    at += _SIZE.size
    try:
        head = SingleMessageMetadata.FromString(batch[at : at + size])
    except DecodeError as error:
        raise MalformedEntry(f"the metadata of message {index} can't be decoded: {error}") from None
    if not head.IsInitialized():
        missing = head.FindInitializationErrors()  # type: ignore[attr-defined]  # the stubs lack it
        raise MalformedEntry(f"the metadata of message {index} lacks {', '.join(missing)}")
    return head, at + size


def _column(values: Sequence[Any]) -> list[Any] | None:
    """Return the values, or None if no message has one."""
    return list(values) if any(value is not None and value is not False and value != 0 for value in values) else None


def _sequence_ids(ids: Sequence[int | None]) -> Sequence[int | None] | None:
    """Return the values, or None if no message has one. 0 is a value."""
    present = [value for value in ids if value is not None]
    if len(present) == len(ids):
        return array("Q", present)
    return list(ids) if present else None


def read_key(head: SingleMessageMetadata | MessageMetadata) -> str | bytes | None:
    """Return the key of a message, as bytes if it was sent as base64; None if there is none."""
    if not head.HasField("partition_key"):
        return None
    return bytes_key(head.partition_key) if head.partition_key_b64_encoded else head.partition_key


def read_properties(head: SingleMessageMetadata | MessageMetadata) -> dict[str, str]:
    """Return the properties of a message."""
    return {pair.key: pair.value for pair in head.properties}
