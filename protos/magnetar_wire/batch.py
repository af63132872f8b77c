"""Messages into entries, and entries into messages.

    entry = encode_batch(messages, shared)            many messages, one entry
    entry = encode_message(messages, shared)          one message, one entry
    messages = decode_messages(decode_entry(stored))  either

`shared` is the metadata that all entries of a producer have in common: producer name, publish time, schema version and
whatever else; what follows from the messages is put into a copy of it.

There are several ways to encode and to decode a batch, for every batch the same bytes and the same messages: batches
that are a table (`_uniform_batch`), batches column by column (`_column_batch`), and message by message
(`_object_batch`). Each says whether it can; the first that can does.
"""

from __future__ import annotations

from array import array
from base64 import b64encode
from dataclasses import fields
from itertools import pairwise
from typing import Final

from magnetar_protos.entry_pb2 import CompressionType, MessageMetadata
from magnetar_wire._column_batch import decode_columns, encode_columns
from magnetar_wire._object_batch import decode_objects, read_key, read_properties
from magnetar_wire._uniform_batch import decode_uniform, encode_uniform
from magnetar_wire.compression import NONE, compress, decompress
from magnetar_wire.entry import Entry, encode_entry
from magnetar_wire.errors import EncryptedEntry, InvalidMessage, MalformedEntry, PartOfMessage
from magnetar_wire.limits import MAX_UNCOMPRESSED_BYTES
from magnetar_wire.messages import Messages

__all__ = ["Messages", "decode_messages", "encode_batch", "encode_message"]

_COLUMNS: Final = tuple(field.name for field in fields(Messages))


def encode_batch(messages: Messages, shared: MessageMetadata, compression: CompressionType = NONE) -> bytes:
    """One entry that holds all the messages. A single message makes a batch of one."""
    _check_columns(messages)
    metadata = MessageMetadata()
    metadata.CopyFrom(shared)
    metadata.num_messages_in_batch = len(messages)
    ids = messages.sequence_ids
    if ids is not None:
        first, last = ids[0], ids[-1]
        if first is None or last is None:
            raise InvalidMessage("a batch's first and last messages have sequence ids, or none of its messages has")
        _set(metadata, sequence_id=first, highest_sequence_id=last)
    try:
        payload = encode_uniform(messages) or encode_columns(messages)
    except (AttributeError, TypeError, UnicodeEncodeError, OverflowError) as error:
        raise InvalidMessage(f"a message can't be encoded: {error}") from None
    return _compressed(metadata, payload, compression)


def encode_message(message: Messages, shared: MessageMetadata, compression: CompressionType = NONE) -> bytes:
    """One entry that is the one message of `message`, not in a batch."""
    _check_columns(message)
    if len(message) != 1:
        raise InvalidMessage(f"an entry without a batch holds one message, not {len(message)}")
    metadata = MessageMetadata()
    metadata.CopyFrom(shared)
    (payload,) = message.payloads
    if message.sequence_ids is not None:
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
    if payload is None:
        metadata.null_value = True
    try:
        for name, value in message.properties[0].items() if message.properties is not None else ():
            metadata.properties.add(key=name, value=value)
    except (TypeError, ValueError, AttributeError) as error:
        raise InvalidMessage(f"a property can't be encoded: {error}") from None
    return _compressed(metadata, payload or b"", compression)


def decode_messages(entry: Entry, *, max_uncompressed_bytes: int = MAX_UNCOMPRESSED_BYTES) -> Messages:
    """The messages of an entry, one or a batch of them."""
    metadata = entry.metadata
    if metadata.encryption_keys:
        raise EncryptedEntry(f"the entry is encrypted under the keys {[key.key for key in metadata.encryption_keys]}")
    if entry.is_chunk:
        raise PartOfMessage(
            f"the entry is chunk {metadata.chunk_id} of {metadata.num_chunks_from_msg} of message {metadata.uuid!r}"
        )
    payload = decompress(entry.payload, metadata.compression, metadata.uncompressed_size, max_uncompressed_bytes)
    if not entry.is_batch:
        return _single(metadata, payload)
    kept = metadata.compacted_batch_indexes
    count = len(kept) if kept else metadata.num_messages_in_batch
    messages = decode_uniform(payload, count) or decode_columns(payload, count) or decode_objects(payload, count)
    if kept:
        messages.batch_indexes = _kept_indexes(list(kept), metadata.num_messages_in_batch)
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


def _kept_indexes(kept: list[int], batch_size: int) -> list[int]:
    if kept[0] < 0 or kept[-1] >= batch_size or any(a >= b for a, b in pairwise(kept)):
        raise MalformedEntry(f"of a batch of {batch_size} messages these are said to be left: {kept[:20]}")
    return kept


def _compressed(metadata: MessageMetadata, payload: bytes | bytearray, compression: CompressionType) -> bytes:
    if compression != NONE:
        metadata.compression = compression
        metadata.uncompressed_size = len(payload)
        payload = compress(payload, compression)
    return encode_entry(metadata, payload)


def _check_columns(messages: Messages) -> None:
    count = len(messages)
    if not count:
        raise InvalidMessage("a batch has at least one message")
    for name in _COLUMNS:
        column = getattr(messages, name)
        if column is not None and len(column) != count:
            raise InvalidMessage(f"there are {count} payloads, and {len(column)} {name}")


def _set(metadata: MessageMetadata, **values: object) -> None:
    try:
        for name, value in values.items():
            setattr(metadata, name, value)
    except (TypeError, ValueError) as error:
        raise InvalidMessage(f"a message can't be encoded: {error}") from None
