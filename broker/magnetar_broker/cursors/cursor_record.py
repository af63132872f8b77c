"""What a cursor's ledger holds: what changed, as bytes, and back.

A record tells the mark-delete position and which entries and messages were acknowledged since the record before; one
with `reset` tells everything. Acknowledgements only add up, so records that are cut off between two of one group leave
nothing half done: what is there is true.

Of each chunk of entries the shorter form is written: runs where there are few holes, bits where there are many.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final

from google.protobuf.message import DecodeError

from magnetar_broker.cursors.ack_state import AckState, Unsaved
from magnetar_broker.cursors.entry_set import CHUNK_ENTRIES, EntrySet
from magnetar_broker.managed_ledger.position import Position
from magnetar_protos.cursor_pb2 import AcknowledgedEntries, AcknowledgedMessages, CursorPlace, CursorRecord

__all__ = ["BadCursorRecord", "apply_record", "encode_changes", "encode_snapshot"]

# What one entry of the ledger holds, or a little more.
PIECE_BYTES: Final = 1_000_000
# Of one run, about; and of each message inside a record, besides what it is about.
_RUN_BYTES: Final = 2
_FRAME_BYTES: Final = 24


class BadCursorRecord(Exception):
    """Bytes in a cursor's ledger that are no record."""


def encode_snapshot(state: AckState) -> Iterator[bytes]:
    """All that there is to know now, in pieces, each of which is made when it is asked for."""
    return _pieces(state, True, _chunks_of(state.entries()), list(state.batches()))


def encode_changes(state: AckState, unsaved: Unsaved) -> Iterator[bytes]:
    """What changed, as it is now, in pieces."""
    mark = state.mark_delete
    for ledger_id in list(unsaved.entries):
        if ledger_id < mark.ledger_id:
            del unsaved.entries[ledger_id]
    if mark.ledger_id in unsaved.entries:
        unsaved.entries[mark.ledger_id].remove_up_to(mark.entry_id)
    batches = [(position, *state.batch(position)) for position in unsaved.batches]
    return _pieces(state, unsaved.reset, _chunks_of(unsaved.entries), [batch for batch in batches if batch[2]])


def _chunks_of(entries: dict[int, EntrySet]) -> list[tuple[int, int, int]]:
    """Ledger, number and bits."""
    return [(ledger_id, *chunk) for ledger_id in sorted(entries) for chunk in entries[ledger_id].chunks()]


def _pieces(
    state: AckState, reset: bool, chunks: list[tuple[int, int, int]], batches: list[tuple[Position, int, int]]
) -> Iterator[bytes]:
    place = CursorPlace(ledger_id=state.mark_delete.ledger_id, entry_id=state.mark_delete.entry_id)
    head = CursorRecord(mark_delete=place, moves=state.moves, take_overs=state.take_overs)
    return _encode(head, reset, chunks, batches)


def _encode(
    head: CursorRecord, reset: bool, chunks: list[tuple[int, int, int]], batches: list[tuple[Position, int, int]]
) -> Iterator[bytes]:
    record, size = CursorRecord(), 0
    record.CopyFrom(head)
    record.reset = reset
    told: Iterable[AcknowledgedEntries | AcknowledgedMessages] = chain(_entries(chunks), _messages(batches))
    for one in told:
        if size > PIECE_BYTES - len(one.bits):
            yield record.SerializeToString()
            record, size = CursorRecord(), 0
            record.CopyFrom(head)
        if isinstance(one, AcknowledgedEntries):
            record.entries.append(one)
            size += _FRAME_BYTES + len(one.bits) + _RUN_BYTES * len(one.runs)
        else:
            record.messages.append(one)
            size += _FRAME_BYTES + len(one.bits)
    yield record.SerializeToString()


def _entries(chunks: list[tuple[int, int, int]]) -> Iterator[AcknowledgedEntries]:
    for ledger_id, number, chunk in chunks:
        skipped = (chunk & -chunk).bit_length() - 1
        bits = chunk >> skipped
        told = AcknowledgedEntries(ledger_id=ledger_id, first_entry_id=number * CHUNK_ENTRIES + skipped)
        changes = bits ^ (bits >> 1)  # one for the last of each run
        if changes.bit_count() * _RUN_BYTES < bits.bit_length() // 8:
            told.runs.extend(_runs(changes))
        else:
            told.bits = _to_bytes(bits)
        yield told


def _runs(changes: int) -> Iterator[int]:
    while changes:
        length = (changes & -changes).bit_length()
        yield length
        changes >>= length


def _messages(batches: Iterable[tuple[Position, int, int]]) -> Iterator[AcknowledgedMessages]:
    for position, bits, size in batches:
        yield AcknowledgedMessages(
            ledger_id=position.ledger_id, entry_id=position.entry_id, bits=_to_bytes(bits), batch_size=size
        )


def _to_bytes(bits: int) -> bytes:
    return bits.to_bytes((bits.bit_length() + 7) // 8, "little")


def apply_record(state: AckState, payload: bytes) -> None:
    """Raises `BadCursorRecord`."""
    try:
        record = CursorRecord.FromString(payload)
    except DecodeError as error:
        raise BadCursorRecord(str(error)) from None
    if not record.HasField("mark_delete"):
        raise BadCursorRecord("it has no mark-delete position")
    mark_delete = Position(record.mark_delete.ledger_id, record.mark_delete.entry_id)
    state.restore(mark_delete, record.moves, record.take_overs, reset=record.reset)
    for told in record.entries:
        first = told.first_entry_id
        for place, length in enumerate(told.runs):
            if not place % 2:
                state.restore_range(told.ledger_id, first, first + length - 1)
            first += length
        state.restore_bits(told.ledger_id, told.first_entry_id, int.from_bytes(told.bits, "little"))
    for batch in record.messages:
        state.restore_messages(
            Position(batch.ledger_id, batch.entry_id), int.from_bytes(batch.bits, "little"), batch.batch_size
        )
