"""An entry of a topic's log as a broker handles it: its place, its bytes, and the few things known of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from magnetar_broker.managed_ledger.position import Position
from magnetar_protos.entry_pb2 import MessageMetadata
from magnetar_wire.entry import Entry, decode_entry_metadata
from magnetar_wire.errors import MalformedEntry

__all__ = ["Chunk", "LogEntry", "NewEntry", "count_messages", "decode_log_entry", "get_chunk"]


class Chunk(NamedTuple):
    """Which part of what message an entry is."""

    # Made of its uuid. Two messages have the same by chance, or because somebody wants it: it is good for choosing a
    # consumer, and nothing else.
    message: int
    number: int
    last: bool


class NewEntry(NamedTuple):
    """An entry that is to be stored, without the broker's part."""

    entry: bytes
    # As in `LogEntry`.
    messages: int
    batch_size: int
    chunk: Chunk | None = None


@dataclass(slots=True)
class LogEntry:
    position: Position
    # As it is stored, the broker's part in front.
    stored: bytes
    # How many messages it holds; and how many a batch: 0, it is none.
    messages: int
    batch_size: int
    # Of its last message.
    index: int
    broker_time_ms: int
    # None: it is whole messages.
    chunk: Chunk | None = None


def count_messages(entry: Entry) -> tuple[int, int]:
    """`messages` and `batch_size` of an entry that was taken apart."""
    if not entry.is_batch:
        return 1, 0
    size = entry.metadata.num_messages_in_batch
    return max(size, 1), max(size, 1)


def get_chunk(metadata: MessageMetadata) -> Chunk | None:
    """None where it is no chunk."""
    chunks = metadata.num_chunks_from_msg
    if chunks <= 1:
        return None
    return Chunk(hash(metadata.uuid), metadata.chunk_id, metadata.chunk_id == chunks - 1)


def decode_log_entry(position: Position, stored: bytes) -> LogEntry:
    """What is known of an entry that was read from a ledger, and whose record was checked by that.

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
