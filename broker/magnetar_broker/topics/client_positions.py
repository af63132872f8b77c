"""Positions that clients name: checked against the log, and resolved to positions of a cursor.

A client may have message ids of an earlier topic that was deleted and recreated under the same name. Ledger ids grow
over the whole cluster, and a topic stores the highest ledger id that existed when it was created (`Log.floor`). So an
id up to that one never belonged to this topic, and is refused: the position next to it would mean another message.
"""

from __future__ import annotations

from dataclasses import dataclass

from magnetar_broker.cursors.ack_state import PartialBatch
from magnetar_broker.cursors.cursor import Cursor
from magnetar_broker.errors import BrokerError
from magnetar_broker.managed_ledger.interface import Log
from magnetar_broker.managed_ledger.readable_entries import read_if_readable
from magnetar_broker.position import Position
from magnetar_protos.broker_pb2 import ErrorCode, StartAt, StartMessageId

__all__ = [
    "StartPosition",
    "find_last_acknowledged",
    "find_start",
    "is_of_another_incarnation",
    "make_incarnation_error",
]


def is_of_another_incarnation(log: Log, ledger_id: int) -> bool:
    """Return whether the ledger never belonged to this topic. Ids below 0 mean the beginning, of any incarnation."""
    return 0 <= ledger_id <= log.floor


def make_incarnation_error(log: Log, position: Position) -> BrokerError:
    return BrokerError(
        ErrorCode.INCARNATION_CHANGED,
        f"{position} is not a position of topic {log.name}: the topic was created after ledger {log.floor}, "
        "perhaps again under the same name. Use a message id of this topic, or earliest or latest",
    )


@dataclass(frozen=True, slots=True)
class StartPosition:
    """Where a subscription begins, or is moved to."""

    mark_delete: Position
    # The first messages of the batch behind it, if they are skipped.
    skipped: PartialBatch | None = None


async def find_start(log: Log, at: StartAt) -> StartPosition:
    """Resolve a position that a client names. One that the log does not have is replaced by the next one that it has.
    Raises `BrokerError`."""
    match at.WhichOneof("at"):
        case "earliest":
            return StartPosition(log.before_first)
        case "latest" | None:
            return StartPosition(log.last)
        case "time_ms":
            found = await log.find_first_at_time(at.time_ms)
            return StartPosition(min(found.previous, log.last))
        case "message_id":
            return await _find_message(log, at.message_id)
        case other:
            raise BrokerError(ErrorCode.INVALID_ARGUMENT, f"a subscription can't start at {other!r}")


def find_last_acknowledged(cursor: Cursor, log: Log) -> StartMessageId:
    """Return the position of the last message before the first one that is not acknowledged."""
    mark_delete = cursor.mark_delete
    first = log.first_after(mark_delete)
    bits = cursor.get_acknowledged_messages(first)
    if bits & 1:
        first_open = (~bits & bits + 1).bit_length() - 1
        return StartMessageId(ledger_id=first.ledger_id, entry_id=first.entry_id, batch_index=first_open - 1)
    return StartMessageId(ledger_id=mark_delete.ledger_id, entry_id=mark_delete.entry_id, batch_index=-1)


async def _find_message(log: Log, message: StartMessageId) -> StartPosition:
    named = Position(message.ledger_id, message.entry_id)
    if is_of_another_incarnation(log, named.ledger_id):
        raise make_incarnation_error(log, named)
    if named < log.before_first.next:
        return StartPosition(log.before_first)
    if named > log.last:
        return StartPosition(log.last)
    if message.batch_index >= 0:
        skipped = message.batch_index + (0 if message.inclusive else 1)
        if not skipped:
            return StartPosition(named.previous)
        entry = await read_if_readable(log, named)
        if entry is not None and entry.batch_size:
            if skipped >= entry.batch_size:
                return StartPosition(named)
            return StartPosition(named.previous, (named, (1 << skipped) - 1, entry.batch_size))
        # It is no batch, or it is lost: the index has no meaning.
    return StartPosition(named.previous if message.inclusive else named)
