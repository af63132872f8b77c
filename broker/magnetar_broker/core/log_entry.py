"""An entry of a topic's log as a broker handles it: its place, its bytes, and the few things known of them."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from google.protobuf.message import DecodeError

from magnetar_broker.core.position import Position
from magnetar_wire.entry import Entry

__all__ = ["LogEntry", "facts_of", "log_entry"]

_HEADER_BYTES: Final = 10
_UINT32: Final = struct.Struct(">I")


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


def facts_of(entry: Entry) -> tuple[int, int]:
    """`messages` and `batch_size` of an entry that was taken apart."""
    if not entry.is_batch:
        return 1, 0
    size = entry.metadata.num_messages_in_batch
    return max(size, 1), max(size, 1)
