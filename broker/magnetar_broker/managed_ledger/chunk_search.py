"""Finds the ends of a message in chunks from one of its chunks: a reader begins with the first one.

Chunks of other producers, and other messages, may lie between those of the message, so entries are read backwards.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from magnetar_broker.managed_ledger.log_entry import LogEntry
from magnetar_broker.position import Position
from magnetar_wire.entry import decode_entry_metadata

__all__ = ["MessageEnds", "find_ends"]

# How far is searched: a message has at most 128 MiB.
_MAX_ENTRIES: Final = 5_000
_MAX_BYTES: Final = 1024 * 1024 * 1024


class MessageEnds(NamedTuple):
    first: Position
    # With this one readers complete it.
    last: Position


async def find_ends(
    entry: LogEntry,
    read: Callable[[Position], Awaitable[LogEntry | None]],
    find_before: Callable[[Position], Position | None],
) -> MessageEnds | None:
    """Return the ends of the message of which this entry is a chunk, as far as it is stored up to there. None: its
    first chunk is not there, or too far away. Raises `BrokerError`."""
    message, last = _get_message(entry), entry.position
    entries_left, bytes_left = _MAX_ENTRIES, _MAX_BYTES
    position: Position | None = entry.position
    found: LogEntry | None = entry
    while position is not None and entries_left > 0 and bytes_left > 0:
        if found is not None and found.chunk is not None and _get_message(found) == message:
            if found.chunk.last:  # later ones were resent, and readers have it by then
                last = found.position
            if found.chunk.number == 0:
                return MessageEnds(found.position, last)
        position = find_before(position)
        if position is not None:
            found = await read(position)
            entries_left -= 1
            bytes_left -= len(found.stored) if found is not None else 0
    return None


def _get_message(entry: LogEntry) -> tuple[str, str]:
    _, metadata = decode_entry_metadata(entry.stored)
    return metadata.producer_name, metadata.uuid
