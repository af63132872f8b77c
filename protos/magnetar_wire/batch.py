"""Messages into entries, and entries into messages.

    entry = encode_batch(messages, shared)            many messages, one entry
    entry = encode_message(messages, shared)          one message, one entry
    messages = decode_messages(decode_entry(stored))  either

`shared` is the metadata that all entries of a producer have in common: producer name, publish time, schema version and
others. Fields that follow from the messages are set in a copy of it, and replace the values of `shared`.

There are several code paths. They make the same bytes and the same messages of every batch: `uniform_batch` for batches
that are a table, `column_encoding` and `column_decoding` for columns, and `message_decoding` for one message after the
other. Each path returns None if it does not support the batch; the first that supports it is used.

A malformed batch is refused as a whole, by `decode_messages`. If only a property is malformed, it is refused by the
first access to a message's properties instead: parsing them is most of the work, and many applications never read them.
To know at once, read `messages.properties[0]`.
"""

from __future__ import annotations

from array import array
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import fields
from itertools import pairwise
from typing import Final

from magnetar_protos.entry_pb2 import CompressionType, MessageMetadata
from magnetar_wire.batch_codec.column_decoding import decode_columns
from magnetar_wire.batch_codec.column_encoding import encode_columns, payload_bytes
from magnetar_wire.batch_codec.message_decoding import decode_objects, read_key, read_properties
from magnetar_wire.batch_codec.uniform_batch import decode_uniform, encode_uniform
from magnetar_wire.compression import NONE, compress, decompress
from magnetar_wire.entry import Entry, encode_entry
from magnetar_wire.errors import EncryptedEntry, InvalidMessage, MalformedEntry, PartOfMessage, TooLarge
from magnetar_wire.limits import MAX_BATCH_MESSAGES, MAX_UNCOMPRESSED_BYTES
from magnetar_wire.messages import Messages

__all__ = [
    "Messages",
    "check_not_encrypted",
    "decode_messages",
    "decode_payload",
    "decompress_payload",
    "encode_batch",
    "encode_message",
    "message_count",
    "read_key",
    "read_properties",
]

_COLUMNS: Final = tuple(field.name for field in fields(Messages))

# The fields that follow from a batch's messages, and those that also follow from a single message. Values of `shared`
# in these fields are ignored.
_OF_BATCH: Final = frozenset(
    {
        MessageMetadata.NUM_MESSAGES_IN_BATCH_FIELD_NUMBER,
        MessageMetadata.COMPACTED_BATCH_INDEXES_FIELD_NUMBER,
        MessageMetadata.COMPRESSION_FIELD_NUMBER,
        MessageMetadata.UNCOMPRESSED_SIZE_FIELD_NUMBER,
        MessageMetadata.NULL_VALUE_FIELD_NUMBER,
        MessageMetadata.UUID_FIELD_NUMBER,
        MessageMetadata.NUM_CHUNKS_FROM_MSG_FIELD_NUMBER,
        MessageMetadata.TOTAL_CHUNK_MSG_SIZE_FIELD_NUMBER,
        MessageMetadata.CHUNK_ID_FIELD_NUMBER,
    }
)
_OF_MESSAGE: Final = _OF_BATCH | {
    MessageMetadata.HIGHEST_SEQUENCE_ID_FIELD_NUMBER,
    MessageMetadata.PARTITION_KEY_FIELD_NUMBER,
    MessageMetadata.PARTITION_KEY_B64_ENCODED_FIELD_NUMBER,
    MessageMetadata.NULL_PARTITION_KEY_FIELD_NUMBER,
    MessageMetadata.ORDERING_KEY_FIELD_NUMBER,
    MessageMetadata.PROPERTIES_FIELD_NUMBER,
    MessageMetadata.EVENT_TIME_FIELD_NUMBER,
}


def encode_batch(messages: Messages, shared: MessageMetadata, compression: CompressionType = NONE) -> bytes:
    """Encode all messages as one entry. A single message becomes a batch of one."""
    _check_columns(messages)
    if len(messages) > MAX_BATCH_MESSAGES:
        raise TooLarge(f"the batch has {len(messages)} messages, above the limit of {MAX_BATCH_MESSAGES}")
    metadata = _without(shared, _OF_BATCH)
    metadata.num_messages_in_batch = len(messages)
    if messages.batch_indexes is not None:
        raise InvalidMessage("batch_indexes must be None in a new batch: its messages are numbered 0, 1, 2 …")
    ids = messages.sequence_ids
    if ids is not None and not _all_none(ids):
        if ids[0] is None or ids[-1] is None:
            raise InvalidMessage(
                "the first and last messages of a batch must have sequence ids if any of its messages has one"
            )
        _set(metadata, sequence_id=ids[0], highest_sequence_id=ids[-1])
    try:
        payload = encode_uniform(messages) or encode_columns(messages)
    except (AttributeError, BufferError, TypeError, ValueError, OverflowError) as error:
        raise InvalidMessage(f"a message can't be encoded: {error}") from None
    return encode_entry(*_compressed(metadata, payload, compression))


def encode_message(message: Messages, shared: MessageMetadata, compression: CompressionType = NONE) -> bytes:
    """Encode the single message of `message` as one entry that is not a batch. Its default sequence id is that of
    `shared`.
    """
    return encode_entry(*encode_message_parts(message, shared, compression))


def encode_message_parts(
    message: Messages, shared: MessageMetadata, compression: CompressionType
) -> tuple[MessageMetadata, bytes | bytearray]:
    """Return the two parts of the entry of `encode_message`: the metadata, and the compressed payload."""
    _check_columns(message)
    if len(message) != 1:
        raise InvalidMessage(f"an entry that is not a batch holds one message, not {len(message)}")
    if message.batch_indexes is not None or (message.compacted_out is not None and message.compacted_out[0]):
        raise InvalidMessage("a message outside a batch can't have a batch index or be compacted out")
    metadata = _without(shared, _OF_MESSAGE)
    try:
        payload = payload_bytes(message.payloads[0])
    except (BufferError, TypeError, ValueError) as error:
        raise InvalidMessage(f"a message can't be encoded: {error}") from None
    if payload is None:
        metadata.null_value = True
    if message.sequence_ids is not None and message.sequence_ids[0] is not None:
        _set(metadata, sequence_id=message.sequence_ids[0])
    if message.keys is not None and (key := message.keys[0]) is not None:
        if isinstance(key, bytes):
            _set(metadata, partition_key=b64encode(key).decode("ascii"), partition_key_b64_encoded=True)
        else:
            _set(metadata, partition_key=key)
    if message.ordering_keys is not None and message.ordering_keys[0] is not None:
        _set(metadata, ordering_key=message.ordering_keys[0])
    if message.event_times is not None and message.event_times[0]:
        _set(metadata, event_time=message.event_times[0])
    if message.null_keys is not None and message.null_keys[0]:
        metadata.null_partition_key = True
    if message.properties is not None:
        _set_properties(metadata, message.properties[0])
    return _compressed(metadata, payload or b"", compression)


def decode_messages(entry: Entry, *, max_uncompressed_bytes: int = MAX_UNCOMPRESSED_BYTES) -> Messages:
    """Decode the messages of an entry: one, or a batch."""
    return decode_payload(entry, decompress_payload(entry, max_uncompressed_bytes=max_uncompressed_bytes))


def decompress_payload(entry: Entry, *, max_uncompressed_bytes: int = MAX_UNCOMPRESSED_BYTES) -> bytes:
    """Decompress the payload of an entry. Raise an error if it can't be decoded alone: it is encrypted, or a chunk."""
    metadata = entry.metadata
    if metadata.encryption_keys:
        check_not_encrypted(metadata)
    if entry.is_chunk:
        raise PartOfMessage(
            f"the entry is chunk {metadata.chunk_id} of {metadata.num_chunks_from_msg} of message "
            f"{metadata.uuid!r}: it can be decoded only together with the others"
        )
    count = message_count(entry)
    if count > MAX_BATCH_MESSAGES:
        raise TooLarge(f"the batch declares {count} messages, above the limit of {MAX_BATCH_MESSAGES}")
    return decompress(entry.payload, metadata.compression, metadata.uncompressed_size, max_uncompressed_bytes)


def check_not_encrypted(metadata: MessageMetadata) -> None:
    """Raise EncryptedEntry if the payload is encrypted."""
    if metadata.encryption_keys:
        raise EncryptedEntry(f"the entry is encrypted with the keys {[key.key for key in metadata.encryption_keys]}")


def message_count(entry: Entry) -> int:
    """Return the number of messages that the entry declares."""
    if not entry.is_batch:
        return 1
    return len(entry.metadata.compacted_batch_indexes) or entry.metadata.num_messages_in_batch


def decode_payload(entry: Entry, payload: bytes) -> Messages:
    """Decode the messages of an entry whose payload is decompressed."""
    metadata, count = entry.metadata, message_count(entry)
    if not entry.is_batch:
        return _single(metadata, payload)
    indexes = metadata.compacted_batch_indexes
    messages = decode_uniform(payload, count) or decode_columns(payload, count) or decode_objects(payload, count)
    if indexes:
        messages.batch_indexes = _check_indexes(list(indexes), metadata.num_messages_in_batch)
    return messages


def _single(metadata: MessageMetadata, payload: bytes) -> Messages:
    key = read_key(metadata)
    return Messages(
        [None if metadata.null_value else payload],
        array("Q", [metadata.sequence_id]),
        keys=None if key is None else [key],
        ordering_keys=[metadata.ordering_key] if metadata.HasField("ordering_key") else None,
        properties=[read_properties(metadata)] if metadata.properties else None,
        event_times=[metadata.event_time] if metadata.event_time else None,
        null_keys=[True] if metadata.null_partition_key else None,
    )


def _check_indexes(indexes: list[int], batch_size: int) -> list[int]:
    if indexes[0] < 0 or indexes[-1] >= batch_size or any(a >= b for a, b in pairwise(indexes)):
        raise MalformedEntry(
            f"the indexes {indexes[:20]} of the messages left in a compacted batch of {batch_size} are not "
            "ascending or out of range"
        )
    return indexes


def _compressed(
    metadata: MessageMetadata, payload: bytes | bytearray, compression: CompressionType
) -> tuple[MessageMetadata, bytes | bytearray]:
    if compression == CompressionType.ZLIB and not payload:
        # Clients based on the C++ library treat an empty zlib payload as damaged, and drop the message.
        compression = NONE
    if compression != NONE:
        size = len(payload)
        if size > MAX_UNCOMPRESSED_BYTES:  # readers refuse it
            raise TooLarge(f"the payload has {size} bytes uncompressed, above the limit of {MAX_UNCOMPRESSED_BYTES}")
        payload = compress(payload, compression)
        metadata.compression = compression
        metadata.uncompressed_size = size
    return metadata, payload


def _check_columns(messages: Messages) -> None:
    try:
        count = len(messages)
        if not count:
            raise InvalidMessage("a batch must have at least one message")
        for name in _COLUMNS:
            column = getattr(messages, name)
            if column is not None and len(column) != count:
                raise InvalidMessage(f"there are {count} payloads, but {len(column)} {name}")
    except TypeError as error:
        raise InvalidMessage(f"a column must be a sequence: {error}") from None


def _all_none(ids: Sequence[int | None]) -> bool:
    return ids[0] is None and all(value is None for value in ids)


def _without(shared: MessageMetadata, fields: frozenset[int]) -> MessageMetadata:
    metadata = MessageMetadata()
    metadata.CopyFrom(shared)
    for field, _ in shared.ListFields():  # few: clearing a dozen absent fields takes twice as long
        if field.number in fields:
            metadata.ClearField(field.name)
    return metadata


def _set_properties(metadata: MessageMetadata, properties: Mapping[str, str]) -> None:
    try:
        for name, value in properties.items():
            if not isinstance(name, str) or not isinstance(value, str):  # protobuf would accept bytes
                raise TypeError(f"a property's name and value must be str, not {name!r} and {value!r}")
            metadata.properties.add(key=name, value=value)
    except (AttributeError, TypeError, ValueError) as error:
        raise InvalidMessage(f"a property can't be encoded: {error}") from None


def _set(metadata: MessageMetadata, **values: object) -> None:
    try:
        for name, value in values.items():
            setattr(metadata, name, value)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidMessage(f"a message can't be encoded: {error}") from None
