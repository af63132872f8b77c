"""An entry of a topic's log as a broker handles it: its position, its bytes, and a few facts about them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from magnetar_broker.position import Position
from magnetar_protos.entry_pb2 import MessageMetadata
from magnetar_wire.entry import Entry, decode_entry_metadata
from magnetar_wire.errors import MalformedEntry

__all__ = ["Chunk", "LogEntry", "NewEntry", "count_messages", "decode_log_entry", "get_chunk"]


class Chunk(NamedTuple):
    """The part of a message that an entry holds."""

    # A hash of its uuid. Two messages may have the same, by chance or by intent: it is used only to choose a consumer.
    message: int
    number: int
    last: bool


class NewEntry(NamedTuple):
    """An entry to be stored, without broker metadata."""

    entry: bytes
    # As in `LogEntry`.
    messages: int
    batch_size: int
    chunk: Chunk | None = None


@dataclass(slots=True)
class LogEntry:
    position: Position
    # The stored bytes, with broker metadata in front.
    stored: bytes
    # The number of its messages, and the size of its batch; 0: it is not a batch.
    messages: int
    batch_size: int
    # The index of its last message.
    index: int
    broker_time_ms: int
    # None: it holds whole messages.
    chunk: Chunk | None = None


def count_messages(entry: Entry) -> tuple[int, int]:
    """Return `messages` and `batch_size` of a decoded entry."""
    if not entry.is_batch:
        return 1, 0
    size = entry.metadata.num_messages_in_batch
    return max(size, 1), max(size, 1)


def get_chunk(metadata: MessageMetadata) -> Chunk | None:
    """Return the chunk that an entry with these metadata holds; None: it holds whole messages."""
    chunks = metadata.num_chunks_from_msg
    if chunks <= 1:
        return None
    return Chunk(hash(metadata.uuid), metadata.chunk_id, metadata.chunk_id == chunks - 1)


def decode_log_entry(position: Position, stored: bytes) -> LogEntry:
    """Decode an entry that was read from a ledger, and whose record was checked.

    Raises `MalformedEntry` for bytes that no broker has stored.
    """
    broker, metadata = decode_entry_metadata(stored)
    if broker is None:
        raise MalformedEntry(f"entry {position} has no broker entry metadata")
    batch_size = max(metadata.num_messages_in_batch, 1) if metadata.HasField("num_messages_in_batch") else 0
    return LogEntry(
        position,
        stored,
        max(batch_size, 1),
        batch_size,
        broker.index,
        broker.broker_timestamp,
        get_chunk(metadata),
    )
