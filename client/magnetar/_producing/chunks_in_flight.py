"""A message that its producer sends in chunks, from the closed batch to its result.

    closed batch ──split──► chunks, each in flight like a batch ──results of all of them──► result of the message

`PartitionProducer` splits a batch whose message is too large for an entry, and puts the chunks into `InFlight` in
order, without other messages between them. So chunks are sent, resent after a break and timed out like batches.
The message is persisted when all of its chunks are, and its id has the positions of the first and the last one. As soon
as one chunk fails, the message has failed, and the chunks that are not sent yet are dropped. What was stored of it
stays in the topic: consumers expire messages that are never complete.

**After a break** a message is resumed with the first chunk that has no result. If its last chunk was sent, too, it is
resent from its first chunk on (`answered_before`): the copy before may be complete, and then consumers have its id,
which would not be that of a mixture of both:

    a0 a1 a2 ── results of a0 and a1, break ──► a0 a1 a2: the id is that of the second copy, as of any resent message

With deduplication, chunks that are stored are duplicates, without a position. If that of the first or the last chunk is
not known, the message has the id (-1,-1), as other duplicates have.

The payload is compressed as a whole by the application's thread (`OutgoingMessage.compress_for_chunks`). An entry is
encoded when it is sent, from a view of the payload, and again when it is resent: so a message waits in its own size,
not twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from magnetar._enums import CompressionType
from magnetar._producing.batch import Batch, StoredAt
from magnetar._producing.in_flight import OutgoingEntry
from magnetar_protos.entry_pb2 import MessageMetadata
from magnetar_wire.batch import encode_message_parts
from magnetar_wire.chunks import ChunkEncoder
from magnetar_wire.compression import NONE

__all__ = ["Chunk", "ChunkedMessage", "split_batch"]

# What the fields of a chunk add to the metadata besides the uuid: three numbers, their tags, and the uuid's.
_CHUNK_FIELDS_BYTES: Final = 40


class Chunk:
    """One entry of a message. In flight it is used like a batch."""

    __slots__ = ("may_be_stored", "message", "number")

    def __init__(self, message: ChunkedMessage, number: int) -> None:
        self.message = message
        self.number = number
        # See `OutgoingEntry`.
        self.may_be_stored = False

    def answered_before(self, sent: Sequence[OutgoingEntry]) -> Sequence[OutgoingEntry]:
        return self.message.restart(self.number, sent)

    @property
    def opened_at(self) -> float:
        return self.message.batch.opened_at

    @property
    def serial(self) -> int:
        return self.message.batch.serial

    def encode(self, shared: MessageMetadata, publish_time_ms: int, compression: CompressionType) -> bytes:
        """Return the entry. All chunks have the metadata of the time when their message was split."""
        return self.message.encoder.encode(self.number)


class ChunkedMessage:
    __slots__ = ("_first", "_left", "batch", "chunks", "encoder", "is_completed")

    def __init__(self, batch: Batch, encoder: ChunkEncoder) -> None:
        self.batch = batch
        self.encoder = encoder
        self.chunks = [Chunk(self, number) for number in range(encoder.count)]
        # The message has its result.
        self.is_completed = False
        # How many chunks have no result, and where the first one is stored.
        self._left = encoder.count
        self._first: tuple[int, int] | None = None

    def add_result(self, chunk: Chunk, stored: StoredAt) -> StoredAt | None:
        """Add a chunk's result. Return the result of the message when it is that of the last chunk without one."""
        self._left -= 1
        if chunk.number == 0 and stored.ledger_id >= 0:
            self._first = (stored.ledger_id, stored.entry_id)
        if self._left:
            return None
        if self.encoder.count == 1:
            return stored
        if self._first is None or stored.ledger_id < 0:
            return stored._replace(ledger_id=-1, entry_id=-1)
        return stored._replace(first_chunk=self._first)

    def complete(self) -> None:
        """The message has its result. Forget its chunks, which refer to it, so that its memory is released at once."""
        self.is_completed = True
        self.chunks = []

    def restart(self, number: int, sent: Sequence[OutgoingEntry]) -> list[Chunk]:
        """Return the chunks before this one, the first without a result, if they must be resent, too."""
        if number == 0 or self.is_completed or not any(entry is self.chunks[-1] for entry in sent):
            return []
        self._left = self.encoder.count
        return self.chunks[:number]


def split_batch(
    batch: Batch, shared: MessageMetadata, publish_time_ms: int, compression: CompressionType, max_message_bytes: int
) -> list[Chunk]:
    """Split a batch of one message that `compress_for_chunks` has prepared. `shared` is the producer's, and is changed.

    A message that fits after compression becomes one plain entry. Raises WireError if it can't be encoded.
    """
    messages, uncompressed_bytes = batch.remove_large_message()
    shared.publish_time = publish_time_ms
    shared.sequence_id = batch.first_sequence_id
    metadata, payload = encode_message_parts(messages, shared, NONE)
    if compression is not CompressionType.NONE:
        metadata.compression = compression.value  # type: ignore[assignment]  # the same numbers
        metadata.uncompressed_size = uncompressed_bytes
    uuid = f"{shared.producer_name}-{batch.first_sequence_id}"
    chunk_bytes = max_message_bytes
    if len(payload) > max_message_bytes:
        # As stock clients calculate it, so that a broker with the same limit for whole entries accepts the chunks.
        chunk_bytes = max(1, max_message_bytes - metadata.ByteSize() - len(uuid.encode()) - _CHUNK_FIELDS_BYTES)
    message = ChunkedMessage(batch, ChunkEncoder(metadata, payload, uuid, chunk_bytes))
    return message.chunks
