"""The ends of a message in chunks, found backwards from one of its chunks."""

from __future__ import annotations

import pytest

from magnetar_broker.managed_ledger.chunk_search import find_ends
from magnetar_broker.managed_ledger.log_entry import LogEntry, decode_log_entry
from magnetar_broker.position import Position
from magnetar_protos.entry_pb2 import MessageMetadata
from magnetar_wire.entry import add_broker_metadata, encode_entry


def entry_of(at: int, name: str) -> LogEntry:
    """`name`: a message and the number of a chunk, of three; without a number, a whole message."""
    metadata = MessageMetadata(producer_name=name[0], sequence_id=1, publish_time=1)
    if len(name) > 1:
        metadata.uuid, metadata.chunk_id, metadata.num_chunks_from_msg = name[0], int(name[1]), 3
        metadata.total_chunk_msg_size = 3
    stored = add_broker_metadata(encode_entry(metadata, b"x"), 1, at)
    return decode_log_entry(Position(at // 4 * 2, at % 4), stored)


@pytest.mark.parametrize(
    ("log", "ends"),
    [
        ("a0 a1 a2", (0, 2)),
        ("a0 b0 a1 - c c0 b1 b2 a2", (0, 8)),
        ("a0 a1 a2 a0 b0 a1 a2", (3, 6)),
        ("a0 a1 a2 b0 a1 a2", (0, 2)),
        ("a0 a1 a2 a0 c a1", (3, 5)),
        ("c a1 a2", None),
    ],
)
async def test_the_ends_of_the_last_message(log: str, ends: tuple[int, int] | None) -> None:
    """MSG-3, CON-7: over entries of others, lost ones and ledgers. A first chunk that was resent begins the message,
    and of a last one that was resent the first counts, as for consumers."""
    entries = [entry_of(at, name) for at, name in enumerate(log.split())]
    lost = [at for at, name in enumerate(log.split()) if name == "-"]
    by_position = {one.position: one for at, one in enumerate(entries) if at not in lost}

    async def read(position: Position) -> LogEntry | None:
        return by_position.get(position)

    def find_before(position: Position) -> Position | None:
        return max((one.position for one in entries if one.position < position), default=None)

    found = await find_ends(entries[-1], read, find_before)
    assert found == (None if ends is None else (entries[ends[0]].position, entries[ends[1]].position))
