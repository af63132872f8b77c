"""Takes the messages out of a batch that are stored already. Only a batch that is partly a duplicate is decoded.

The others become a batch of their own, encoded like the first one. The duplicates are not marked as `compacted_out`
instead: clients skip such messages, and do not count them as acknowledged, so a Shared subscription would never have
acknowledged the whole entry. The price: indexes in the batch count from the first message that is stored. Stock clients
make the ids of a batch's messages themselves, and those of such a batch are too high by the number of duplicates.

**The cost is bounded**, since some hundred bytes may decompress to a million messages, and the event loop waits for
them. A batch may have more messages and bytes than clients send, but not more than the loop handles at once. An opening
of a producer has as much for all of its batches together as a few of them need: a client that resends what is pending
needs it once, for the batch at which the stored messages end. One that needs it again reopens the producer.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Final, NamedTuple

from google.protobuf.message import DecodeError

from magnetar_broker.errors import BrokerError
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.entry_pb2 import CompressionType, MessageMetadata, SingleMessageMetadata
from magnetar_wire.batch import decompress_payload
from magnetar_wire.compression import compress
from magnetar_wire.entry import decode_entry, encode_entry
from magnetar_wire.errors import WireError
from magnetar_wire.limits import MAX_BATCH_METADATA_BYTES, MAX_RECORD_METADATA_BYTES

__all__ = ["BatchSplitter", "Inseparable", "NewMessages"]

_LENGTH_BYTES: Final = 4
# Stock clients send at most a thousand messages in a batch by default, and 128 KiB.
_MAX_MESSAGES: Final = 10_000
_MAX_UNCOMPRESSED_BYTES: Final = 16_777_216
# For all batches of an opening. A message costs one, and a KiB, too: each takes some microseconds.
_MAX_COST: Final = 30_000
_BYTES_PER_COST: Final = 1_024
# Another compressor may need a bit more. The memory of entries is counted by the size in which they were sent.
_MAX_GROWTH_BYTES: Final = 512
_MAX_GROWTH: Final = 8


class Inseparable(BrokerError):
    """Some messages of a batch are stored already, and the others can't be separated: its producer has to end."""


class NewMessages(NamedTuple):
    """The messages of a batch that are not duplicates."""

    entry: bytes
    messages: int
    # The number of duplicates in front of them.
    duplicates: int


class _Part(NamedTuple):
    sequence_id: int | None
    # Metadata and payload, as they are in the batch.
    content: bytes


class BatchSplitter:
    """Splits the batches of one opening of a producer."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        # What further batches may cost.
        self._left = _MAX_COST

    def take_new_messages(self, entry: bytes, received: int) -> NewMessages:
        """Return the messages with ids above `received`. Raises `Inseparable`: the batch must not be stored."""
        try:
            decoded = decode_entry(entry, verify=False)
            metadata = decoded.metadata
            if metadata.encryption_keys:
                raise _refuse("it is encrypted")
            self._count(metadata, len(decoded.payload))
            parts = list(_split(decompress_payload(decoded), metadata.num_messages_in_batch))
        except (WireError, DecodeError, ValueError) as error:
            raise _refuse(f"its payload can't be decoded: {error}") from None
        ids = _find_ids(metadata, parts)
        duplicates = sum(sequence_id <= received for sequence_id in ids)
        left = parts[duplicates:]
        try:
            encoded = _encode(metadata, left, ids[duplicates])
        except WireError as error:
            raise _refuse(f"its other messages can't be encoded: {error}") from None
        if len(encoded) > len(entry) + len(entry) // _MAX_GROWTH + _MAX_GROWTH_BYTES:
            raise _refuse(
                f"its other messages have {len(encoded)} bytes when compressed, and the batch has {len(entry)}"
            )
        return NewMessages(encoded, len(left), duplicates)

    def _count(self, metadata: MessageMetadata, payload_bytes: int) -> None:
        messages = metadata.num_messages_in_batch
        is_compressed = metadata.compression != CompressionType.NONE
        size = metadata.uncompressed_size if is_compressed else payload_bytes
        for count, limit, what in (
            (messages, _MAX_MESSAGES, "messages"),
            (size, _MAX_UNCOMPRESSED_BYTES, "bytes uncompressed"),
        ):
            if count > limit:
                raise _refuse(f"it has {count:,} {what}, and at most {limit:,} are separated")
        cost = messages + size // _BYTES_PER_COST
        if cost > self._left:
            raise Inseparable(
                ErrorCode.SERVICE_NOT_READY,
                "many batches of this producer had messages that were stored already, and another one, of "
                f"{messages:,} messages, is separated when the producer is reopened",
            )
        self._left -= cost


def _split(payload: bytes, count: int) -> Iterator[_Part]:
    at = metadata_bytes = 0
    for _ in range(count):
        metadata_at = at + _LENGTH_BYTES
        size = int.from_bytes(payload[at:metadata_at], "big")
        metadata_bytes += size
        if size > MAX_RECORD_METADATA_BYTES or metadata_bytes > MAX_BATCH_METADATA_BYTES:
            raise ValueError("the metadata of its messages are too large")
        payload_at = metadata_at + size
        if payload_at > len(payload):
            raise ValueError("a message exceeds the payload")
        single = SingleMessageMetadata.FromString(payload[metadata_at:payload_at])
        end = payload_at + single.payload_size
        if single.payload_size < 0 or end > len(payload) or end <= at:
            raise ValueError("a message exceeds the payload")
        yield _Part(single.sequence_id if single.HasField("sequence_id") else None, payload[at:end])
        at = end
    if at != len(payload):
        raise ValueError(f"{len(payload) - at} bytes are behind the last message")


def _find_ids(metadata: MessageMetadata, parts: list[_Part]) -> list[int]:
    """Return the ids of the messages, which ascend from the lowest to the highest one that the entry declares."""
    lowest, highest = metadata.sequence_id, metadata.highest_sequence_id
    ids = [part.sequence_id for part in parts if part.sequence_id is not None]
    if not ids and highest - lowest + 1 == len(parts):
        return list(range(lowest, highest + 1))
    if len(ids) < len(parts):
        raise _refuse(f"{len(parts) - len(ids)} of its messages have no sequence id")
    if ids[0] != lowest or ids[-1] != highest or any(a >= b for a, b in pairwise(ids)):
        raise _refuse(f"it declares the sequence ids {lowest} … {highest}, which its messages do not have, in order")
    return ids


def _encode(metadata: MessageMetadata, parts: list[_Part], lowest: int) -> bytes:
    metadata.num_messages_in_batch = len(parts)
    metadata.sequence_id = lowest
    payload = b"".join([part.content for part in parts])
    if metadata.compression != CompressionType.NONE or metadata.HasField("uncompressed_size"):
        metadata.uncompressed_size = len(payload)
    if metadata.compression != CompressionType.NONE:
        payload = bytes(compress(payload, metadata.compression))
    return encode_entry(metadata, payload)


def _refuse(reason: str) -> Inseparable:
    return Inseparable(
        ErrorCode.INVALID_ARGUMENT,
        f"some messages of the batch are stored already, and the others can't be separated, since {reason}; "
        "neither they nor later entries are stored, and the producer ends: send the messages behind the last sequence "
        "id that the topic has, in order",
    )
