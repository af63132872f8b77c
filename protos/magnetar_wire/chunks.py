"""A message that is too large for one entry, as several entries.

The payload is compressed as a whole and then cut into chunks, so a single chunk can't be decompressed. Each chunk is an
entry of its own. It repeats the message's properties, key and times, and identifies itself: `uuid` of the message,
`chunk_id` of `num_chunks_from_msg`, `total_chunk_msg_size` of the compressed payload, and `uncompressed_size` of the
whole. Stock clients use the same format.

A reader collects the chunks of a uuid until it has all of them, within its own limits of number and time. Then it calls
`join_chunks`.
"""

from __future__ import annotations

from collections.abc import Sequence

from magnetar_protos.entry_pb2 import CompressionType, MessageMetadata
from magnetar_wire.batch import decode_messages, encode_message_parts
from magnetar_wire.compression import NONE
from magnetar_wire.entry import Entry, encode_entry
from magnetar_wire.errors import MalformedEntry, PartOfMessage, UncompressedTooLarge
from magnetar_wire.limits import MAX_MESSAGE_BYTES, MAX_UNCOMPRESSED_BYTES
from magnetar_wire.messages import Messages

__all__ = ["ChunkEncoder", "common_fields", "encode_chunks", "join_chunks"]


class ChunkEncoder:
    """The chunks of one message, each of which is encoded when it is needed. The payload is not copied before."""

    __slots__ = ("_chunk_bytes", "_metadata", "_payload", "count")

    def __init__(
        self, metadata: MessageMetadata, payload: bytes | bytearray, uuid: str, max_payload_bytes: int
    ) -> None:
        """`metadata` is that of the message whose compressed payload this is, and is changed."""
        total = len(payload)
        self.count = -(-total // max_payload_bytes)
        self._chunk_bytes = max_payload_bytes
        self._payload = memoryview(payload)
        self._metadata = metadata
        if self.count > 1:
            metadata.uuid = uuid
            metadata.num_chunks_from_msg = self.count
            metadata.total_chunk_msg_size = total

    def encode(self, chunk_id: int) -> bytes:
        """Return the entry of a chunk; of the only one, that of the whole message."""
        if self.count > 1:
            self._metadata.chunk_id = chunk_id
        at = chunk_id * self._chunk_bytes
        return encode_entry(self._metadata, self._payload[at : at + self._chunk_bytes])


def encode_chunks(
    message: Messages,
    shared: MessageMetadata,
    uuid: str,
    max_payload_bytes: int = MAX_MESSAGE_BYTES,
    compression: CompressionType = NONE,
) -> list[bytes]:
    """Encode the single message of `message` as entries of at most `max_payload_bytes` of payload each.

    A message that fits after compression becomes one plain entry, as with `encode_message`. `uuid` must be unique among
    the chunked messages of all producers of the topic.
    """
    if not 0 < max_payload_bytes <= MAX_MESSAGE_BYTES:
        raise ValueError(f"a chunk can't have {max_payload_bytes} bytes of payload: use 1 … {MAX_MESSAGE_BYTES}")
    if not uuid:
        raise ValueError("the uuid of a message in chunks is empty: its chunks are matched by it")
    metadata, payload = encode_message_parts(message, shared, compression)
    total = len(payload)
    if total <= max_payload_bytes:
        return [encode_entry(metadata, payload)]
    _check_total(total, MAX_UNCOMPRESSED_BYTES)
    encoder = ChunkEncoder(metadata, payload, uuid, max_payload_bytes)
    return [encoder.encode(chunk_id) for chunk_id in range(encoder.count)]


def join_chunks(chunks: Sequence[Entry], *, max_uncompressed_bytes: int = MAX_UNCOMPRESSED_BYTES) -> Messages:
    """Decode the message of `chunks`, which must be all of its chunks in order. Its metadata is that of the first
    chunk.
    """
    if not chunks:
        raise PartOfMessage("no chunks were given: a message has at least one")
    first = chunks[0].metadata
    if len(chunks) == 1 and not chunks[0].is_chunk:
        return decode_messages(chunks[0], max_uncompressed_bytes=max_uncompressed_bytes)
    for index, chunk in enumerate(chunks):
        _check_chunk(chunk, index, first)
    if len(chunks) < first.num_chunks_from_msg:
        raise PartOfMessage(
            f"message {first.uuid!r} is incomplete: {len(chunks)} of its {first.num_chunks_from_msg} chunks were given"
        )
    total = sum(len(chunk.payload) for chunk in chunks)
    if total != first.total_chunk_msg_size:
        raise MalformedEntry(
            f"message {first.uuid!r} declares {first.total_chunk_msg_size} bytes in all chunks, but has {total}"
        )
    _check_total(total, max_uncompressed_bytes)
    metadata = MessageMetadata()
    metadata.CopyFrom(first)
    metadata.ClearField("num_chunks_from_msg")  # the joined message is not a chunk
    whole = Entry(metadata, b"".join(chunk.payload for chunk in chunks))
    return decode_messages(whole, max_uncompressed_bytes=max_uncompressed_bytes)


def _check_chunk(chunk: Entry, index: int, first: MessageMetadata) -> None:
    metadata = chunk.metadata
    if not chunk.is_chunk or chunk.is_batch:
        raise MalformedEntry(f"entry {index} of message {first.uuid!r} is not a chunk")
    if common_fields(metadata) != common_fields(first):
        raise MalformedEntry(
            f"chunk {index} declares {common_fields(metadata)} for its message, "
            f"but the first chunk {common_fields(first)}"
        )
    if metadata.chunk_id != index or index >= metadata.num_chunks_from_msg:
        raise MalformedEntry(
            f"chunk {metadata.chunk_id} of {metadata.num_chunks_from_msg} of message {metadata.uuid!r} is "
            f"out of order: chunk {index} was expected"
        )


def common_fields(metadata: MessageMetadata) -> tuple[str | int, ...]:
    """Return the fields that all chunks of a message must have in common."""
    return (
        metadata.uuid,
        metadata.producer_name,
        metadata.sequence_id,
        metadata.num_chunks_from_msg,
        metadata.total_chunk_msg_size,
        metadata.compression,
        metadata.uncompressed_size,
    )


def _check_total(size: int, limit: int) -> None:
    if size > limit:
        raise UncompressedTooLarge(f"the message has {size} bytes in all its chunks, above the limit of {limit}")
