"""The records of a cursor's ledger: how changes of an `AckState` are encoded, and applied when the ledger is read.

A record has the mark-delete position, and the entries and messages that were acknowledged since the record before. A
record with `reset` voids all records before it. Acknowledgements only accumulate, so a group of records that is cut
off in the middle, as by a crash, leaves a valid state.

The entries of each block are encoded in the shorter form: as runs if there are few holes, else as bits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Final

from google.protobuf.message import DecodeError

from magnetar_broker.cursors.ack_state import AckState, PartialBatch, Unsaved
from magnetar_broker.cursors.entry_set import BLOCK_ENTRIES, EntrySet
from magnetar_broker.position import Position
from magnetar_protos.cursor_pb2 import AcknowledgedEntries, AcknowledgedMessages, CursorPosition, CursorRecord

__all__ = ["BadCursorRecord", "apply_record", "encode_changes", "encode_snapshot"]

# Approximate maximum size of a record, which is one entry of the ledger.
MAX_RECORD_BYTES: Final = 1_000_000
# Approximate size of one run, and of a nested message without its bits or runs.
_RUN_BYTES: Final = 2
_FRAME_BYTES: Final = 24

# Ledger id, number of the block, its bits.
_Block = tuple[int, int, int]


class BadCursorRecord(Exception):
    """Bytes in a cursor's ledger that are not a valid record."""


def encode_snapshot(state: AckState) -> Iterator[bytes]:
    """Encode the whole state as records. Each is encoded when it is requested."""
    return _encode(state, True, _blocks_of(state.entries()), list(state.batches()), state.attachment)


def encode_changes(state: AckState, unsaved: Unsaved) -> Iterator[bytes]:
    """Encode the changes that are not saved yet as records."""
    mark = state.mark_delete
    for ledger_id in list(unsaved.entries):
        if ledger_id < mark.ledger_id:
            del unsaved.entries[ledger_id]
    if mark.ledger_id in unsaved.entries:
        unsaved.entries[mark.ledger_id].remove_up_to(mark.entry_id)
    batches = [(position, *state.get_batch(position)) for position in unsaved.batches]
    left = [batch for batch in batches if batch[2]]
    attachment = state.attachment if unsaved.attachment else b""
    return _encode(state, unsaved.reset, _blocks_of(unsaved.entries), left, attachment)


def _blocks_of(entries: Mapping[int, EntrySet]) -> list[_Block]:
    return [(ledger_id, *block) for ledger_id in sorted(entries) for block in entries[ledger_id].blocks()]


def _encode(
    state: AckState, reset: bool, blocks: list[_Block], batches: list[PartialBatch], attachment: bytes
) -> Iterator[bytes]:
    mark_delete = CursorPosition(ledger_id=state.mark_delete.ledger_id, entry_id=state.mark_delete.entry_id)
    head = CursorRecord(mark_delete=mark_delete, moves=state.moves, take_overs=state.take_overs)
    return _encode_records(head, reset, blocks, batches, attachment)


def _encode_records(
    head: CursorRecord, reset: bool, blocks: list[_Block], batches: list[PartialBatch], attachment: bytes
) -> Iterator[bytes]:
    record, size = CursorRecord(), 0
    record.CopyFrom(head)
    record.reset = reset
    record.attachment = attachment  # in the first record, which has the mark-delete position that it belongs to
    parts: Iterable[AcknowledgedEntries | AcknowledgedMessages] = chain(_entries(blocks), _messages(batches))
    for part in parts:
        if size > MAX_RECORD_BYTES - len(part.bits):
            yield record.SerializeToString()
            record, size = CursorRecord(), 0
            record.CopyFrom(head)
        if isinstance(part, AcknowledgedEntries):
            record.entries.append(part)
            size += _FRAME_BYTES + len(part.bits) + _RUN_BYTES * len(part.runs)
        else:
            record.messages.append(part)
            size += _FRAME_BYTES + len(part.bits)
    yield record.SerializeToString()


def _entries(blocks: list[_Block]) -> Iterator[AcknowledgedEntries]:
    for ledger_id, number, block in blocks:
        skipped = (block & -block).bit_length() - 1
        bits = block >> skipped
        encoded = AcknowledgedEntries(ledger_id=ledger_id, first_entry_id=number * BLOCK_ENTRIES + skipped)
        changes = bits ^ (bits >> 1)  # a bit for the last entry of each run
        if changes.bit_count() * _RUN_BYTES < bits.bit_length() // 8:
            encoded.runs.extend(_runs(changes))
        else:
            encoded.bits = _to_bytes(bits)
        yield encoded


def _runs(changes: int) -> Iterator[int]:
    while changes:
        length = (changes & -changes).bit_length()
        yield length
        changes >>= length


def _messages(batches: Iterable[PartialBatch]) -> Iterator[AcknowledgedMessages]:
    for position, bits, size in batches:
        yield AcknowledgedMessages(
            ledger_id=position.ledger_id, entry_id=position.entry_id, bits=_to_bytes(bits), batch_size=size
        )


def _to_bytes(bits: int) -> bytes:
    return bits.to_bytes((bits.bit_length() + 7) // 8, "little")


def apply_record(state: AckState, payload: bytes) -> None:
    """Apply a record to the state. Raises `BadCursorRecord`. After the last record, call `AckState.match_log`."""
    try:
        record = CursorRecord.FromString(payload)
    except DecodeError as error:
        raise BadCursorRecord(str(error)) from None
    if not record.HasField("mark_delete"):
        raise BadCursorRecord("it has no mark-delete position")
    mark_delete = Position(record.mark_delete.ledger_id, record.mark_delete.entry_id)
    state.restore_mark_delete(mark_delete, record.moves, record.take_overs, reset=record.reset)
    state.attachment = record.attachment or state.attachment
    for entries in record.entries:
        first = entries.first_entry_id
        for number, length in enumerate(entries.runs):
            if number % 2 == 0:  # runs of acknowledged and of other entries alternate
                state.restore_range(entries.ledger_id, first, first + length - 1)
            first += length
        state.restore_bits(entries.ledger_id, entries.first_entry_id, int.from_bytes(entries.bits, "little"))
    for batch in record.messages:
        state.restore_messages(
            Position(batch.ledger_id, batch.entry_id), int.from_bytes(batch.bits, "little"), batch.batch_size
        )
