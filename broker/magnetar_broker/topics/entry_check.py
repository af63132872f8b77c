"""Checks entries of producers, for both listeners, and reads what the log has to know of them.

Payloads are not decoded, so the number of messages in a batch is what the producer declares. Indexes, permits and
acknowledgements are counted with it, so it must be possible for a payload of that size. Entries that need something
that the broker does not support are refused: a message with a delivery time, for example, would be delivered at once.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from magnetar_broker.errors import BrokerError
from magnetar_broker.managed_ledger.log_entry import Chunk, get_chunk
from magnetar_broker.topics.deduplication.rules import EntryIds, get_entry_ids
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.entry_pb2 import CompressionType, MessageMetadata
from magnetar_wire.compression import uncompressed_at_most
from magnetar_wire.entry import check_entry, decode_entry_metadata
from magnetar_wire.errors import ChecksumMismatch, TooLarge, UnknownCompression, WireError
from magnetar_wire.limits import MAX_BATCH_MESSAGES, MAX_METADATA_BYTES, MAX_UNCOMPRESSED_BYTES

__all__ = ["AcceptedEntry", "accept_entry", "find_last_sequence_id", "may_be_resent"]

# Bytes of a message in a batch: its length, and the metadata of an empty one.
_MIN_MESSAGE_BYTES: Final = 6
_MAX_SEQUENCE_ID: Final = 2**63 - 1


class AcceptedEntry(NamedTuple):
    messages: int
    # The number of messages of a batch. 0: it is no batch.
    batch_size: int
    # That of its last message, as far as that is known without decoding it.
    sequence_id: int
    chunk: Chunk | None
    # By which duplicates are found.
    ids: EntryIds


def accept_entry(
    entry: bytes,
    producer_name: str,
    max_message_bytes: int,
    max_topic_message_bytes: int = 2**31,
    *,
    takes_chunks: bool = True,
) -> AcceptedEntry:
    """`max_topic_message_bytes`: the topic's limit, which chunks may exceed. `takes_chunks`: chunks are allowed. Raises
    `BrokerError` if the entry must not be stored."""
    try:
        metadata, payload_bytes = check_entry(entry)
    except TooLarge as error:
        raise BrokerError(ErrorCode.MESSAGE_TOO_BIG, str(error)) from None
    except ChecksumMismatch as error:
        raise BrokerError(ErrorCode.CHECKSUM_ERROR, str(error)) from None
    except WireError as error:
        raise BrokerError(ErrorCode.INVALID_ARGUMENT, str(error)) from None
    if payload_bytes > max_message_bytes:
        raise BrokerError(
            ErrorCode.MESSAGE_TOO_BIG,
            f"the entry's payload has {payload_bytes} bytes, above the limit of {max_message_bytes} "
            f"(max_message_size); its metadata may have {MAX_METADATA_BYTES} more",
        )
    if metadata.producer_name != producer_name:
        raise BrokerError(
            ErrorCode.INVALID_ARGUMENT,
            f"the entry's metadata names producer {metadata.producer_name!r:.200}, but {producer_name!r} sent it",
        )
    sequence_id = max(metadata.sequence_id, metadata.highest_sequence_id)
    if sequence_id > _MAX_SEQUENCE_ID:
        raise BrokerError(
            ErrorCode.INVALID_ARGUMENT, f"the sequence id {sequence_id} is above the limit of {_MAX_SEQUENCE_ID}"
        )
    _check_supported(metadata)
    chunk = get_chunk(metadata)
    if chunk is not None:
        if not takes_chunks:
            raise BrokerError(
                ErrorCode.NOT_ALLOWED,
                "the entry is a chunk, and the topic is non-persistent: chunks could be dropped one by one; send "
                "messages that fit into one entry",
            )
        _check_chunk(metadata)
    elif payload_bytes > max_topic_message_bytes:
        raise BrokerError(
            ErrorCode.MESSAGE_TOO_BIG,
            f"the entry's payload has {payload_bytes} bytes, above the topic's limit of {max_topic_message_bytes} "
            "(policy max_message_size_bytes)",
        )
    if not metadata.HasField("num_messages_in_batch"):
        return AcceptedEntry(1, 0, find_last_sequence_id(metadata), chunk, get_entry_ids(metadata))
    messages = metadata.num_messages_in_batch
    _check_batch(messages, metadata, payload_bytes)
    return AcceptedEntry(messages, messages, find_last_sequence_id(metadata), None, get_entry_ids(metadata))


def may_be_resent(entry: bytes, code: int) -> bool:
    """Return whether clients may send an entry again by themselves after it was refused with this code.

    Some compare the checksum of their own copy, and resend that. Of a chunk, the others of its message follow.
    """
    if code == ErrorCode.CHECKSUM_ERROR:
        return True
    try:
        _, metadata = decode_entry_metadata(entry)
    except WireError:
        return False
    return metadata.num_chunks_from_msg > 1


def find_last_sequence_id(metadata: MessageMetadata) -> int:
    """Return the sequence id of the entry's last message, or a lower one if it is not known; -1: the message has
    further chunks.

    Some libraries set only that of a batch's first message. If its messages have a key, this may be a key-based
    batch, and messages of other batches have ids between its own. Java's client sets both to the last message's then.
    """
    if metadata.num_chunks_from_msg > metadata.chunk_id + 1:
        return -1
    sequence_id = max(metadata.sequence_id, metadata.highest_sequence_id)
    is_keyed = metadata.partition_key or metadata.ordering_key
    if metadata.HasField("num_messages_in_batch") and not metadata.highest_sequence_id and not is_keyed:
        sequence_id = max(sequence_id, metadata.sequence_id + metadata.num_messages_in_batch - 1)
    return min(sequence_id, _MAX_SEQUENCE_ID)


def _check_batch(messages: int, metadata: MessageMetadata, payload_bytes: int) -> None:
    """Check that the payload can have that number of messages, as far as that is known without decoding it."""
    if not 0 < messages <= MAX_BATCH_MESSAGES:
        raise BrokerError(
            ErrorCode.INVALID_ARGUMENT, f"the batch declares {messages} messages: use 1 … {MAX_BATCH_MESSAGES}"
        )
    try:
        most = uncompressed_at_most(payload_bytes, metadata.compression)
    except UnknownCompression as error:
        raise BrokerError(ErrorCode.UNSUPPORTED, str(error)) from None
    size = payload_bytes if metadata.compression == CompressionType.NONE else metadata.uncompressed_size
    if size > min(most, MAX_UNCOMPRESSED_BYTES):
        raise BrokerError(
            ErrorCode.INVALID_ARGUMENT,
            f"the payload of {payload_bytes} bytes declares {size} bytes uncompressed, but at most "
            f"{min(most, MAX_UNCOMPRESSED_BYTES)} are possible",
        )
    if messages * _MIN_MESSAGE_BYTES > size:
        raise BrokerError(
            ErrorCode.INVALID_ARGUMENT,
            f"the batch declares {messages} messages, which have at least {messages * _MIN_MESSAGE_BYTES} "
            f"bytes, but its uncompressed payload has {size}",
        )


def _check_chunk(metadata: MessageMetadata) -> None:
    """Check that the chunk names its message and its number. Consumers handle messages with missing chunks."""
    if metadata.HasField("num_messages_in_batch"):
        raise BrokerError(ErrorCode.INVALID_ARGUMENT, "the entry is both a chunk and a batch, which is not allowed")
    if not metadata.uuid:
        raise BrokerError(ErrorCode.INVALID_ARGUMENT, "the entry is a chunk without the uuid of its message")
    if not 0 <= metadata.chunk_id < metadata.num_chunks_from_msg:
        raise BrokerError(
            ErrorCode.INVALID_ARGUMENT,
            f"the entry is chunk {metadata.chunk_id} of {metadata.num_chunks_from_msg}: chunks are numbered from 0",
        )


def _check_supported(metadata: MessageMetadata) -> None:
    if not (metadata.deliver_at_time or metadata.HasField("txnid_most_bits") or metadata.HasField("marker_type")):
        return
    for is_requested, what in (
        (metadata.deliver_at_time > 0, "for delayed delivery, which is not supported yet"),
        (metadata.HasField("txnid_most_bits"), "part of a transaction, and transactions are not supported"),
    ):
        if is_requested:
            raise BrokerError(ErrorCode.UNSUPPORTED, f"the entry is {what}")
    if metadata.HasField("marker_type"):
        raise BrokerError(ErrorCode.NOT_ALLOWED, "the entry is a marker, which only brokers may write")
