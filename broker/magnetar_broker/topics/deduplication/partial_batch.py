"""Takes the messages out of a batch that are stored already. Only a batch that is partly a duplicate is decoded.

The others become a batch of their own, encoded like the first one. The duplicates are not marked as `compacted_out`
instead: clients skip such messages, and do not count them as acknowledged, so a Shared subscription would never have
acknowledged the whole entry. The price: indexes in the batch count from the first message that is stored. Stock clients
make the ids of a batch's messages themselves, and those of such a batch are too high by the number of duplicates.
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

__all__ = ["NewMessages", "take_new_messages"]

_LENGTH_BYTES: Final = 4


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


def take_new_messages(entry: bytes, received: int) -> NewMessages:
    """Return the messages with ids above `received`. Raises `BrokerError`: the batch must not be stored."""
    try:
        decoded = decode_entry(entry, verify=False)
        metadata = decoded.metadata
        if metadata.encryption_keys:
            raise _refuse("it is encrypted")
        parts = list(_split(decompress_payload(decoded), metadata.num_messages_in_batch))
    except (WireError, DecodeError, ValueError) as error:
        raise _refuse(f"its payload can't be decoded: {error}") from None
    ids = _find_ids(metadata, parts)
    duplicates = sum(sequence_id <= received for sequence_id in ids)
    left = parts[duplicates:]
    try:
        return NewMessages(_encode(metadata, left, ids[duplicates]), len(left), duplicates)
    except WireError as error:
        raise _refuse(f"its other messages can't be encoded: {error}") from None


def _split(payload: bytes, count: int) -> Iterator[_Part]:
    at = 0
    for _ in range(count):
        metadata_at = at + _LENGTH_BYTES
        payload_at = metadata_at + int.from_bytes(payload[at:metadata_at], "big")
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


def _refuse(reason: str) -> BrokerError:
    return BrokerError(
        ErrorCode.INVALID_ARGUMENT,
        f"some messages of the batch are stored already, and the others can't be separated, since {reason}; "
        "none of them is stored now: send the messages that are not stored in batches of their own",
    )
