"""Where a subscription begins, or a seek leads, as a place of its cursor."""

from __future__ import annotations

from dataclasses import dataclass

from magnetar_broker.cursors.ack_state import PartialBatch
from magnetar_broker.errors import BrokerError
from magnetar_broker.managed_ledger.interface import Log
from magnetar_broker.managed_ledger.position import Position
from magnetar_broker.managed_ledger.readable_entry import read_if_readable
from magnetar_broker.topics.foreign_ids import another_incarnation, is_of_another_incarnation
from magnetar_protos.broker_pb2 import ErrorCode, MessagePlace, StartAt

__all__ = ["StartPosition", "find_start"]


@dataclass(frozen=True, slots=True)
class StartPosition:
    mark_delete: Position
    # Of the entry behind it, a batch: the messages that are passed over.
    passed_over: PartialBatch | None = None


async def find_start(log: Log, at: StartAt) -> StartPosition:
    """Raises `BrokerError`. A place that the log has not (any more, or yet) is the next one that it has."""
    match at.WhichOneof("at"):
        case "earliest":
            return StartPosition(log.before_first)
        case "latest" | None:
            return StartPosition(log.last)
        case "time_ms":
            found = await log.find_first_at_time(at.time_ms)
            return StartPosition(min(found.previous, log.last))
        case "place":
            return await _at_place(log, at.place)
        case other:
            raise BrokerError(ErrorCode.INVALID_ARGUMENT, f"a subscription can't start at {other!r}")


async def _at_place(log: Log, place: MessagePlace) -> StartPosition:
    named = Position(place.ledger_id, place.entry_id)
    if is_of_another_incarnation(log, named.ledger_id):
        raise another_incarnation(log, named)
    if named < log.before_first.next:
        return StartPosition(log.before_first)
    if named > log.last:
        return StartPosition(log.last)
    if place.batch_index >= 0:
        passed = place.batch_index + (0 if place.inclusive else 1)
        if not passed:
            return StartPosition(named.previous)
        entry = await read_if_readable(log, named)
        if entry is not None and entry.batch_size:
            if passed >= entry.batch_size:
                return StartPosition(named)
            return StartPosition(named.previous, (named, (1 << passed) - 1, entry.batch_size))
        # It is no batch, or lost: the index says nothing.
    return StartPosition(named.previous if place.inclusive else named)
