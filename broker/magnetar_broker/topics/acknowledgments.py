"""A client's acknowledgement: checked, for it may name anything, and told to the cursor and to the rule of dispatch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

from magnetar_broker.errors import BrokerError
from magnetar_broker.managed_ledger.interface import Cursor, EntriesOf, Log, MessagesOf
from magnetar_broker.managed_ledger.position import Position
from magnetar_broker.topics.dispatch.consumer_state import ConsumerState
from magnetar_broker.topics.dispatch.dispatch_rule import DispatchRule
from magnetar_broker.topics.foreign_ids import another_incarnation, is_of_another_incarnation
from magnetar_protos.broker_pb2 import Acknowledge, BatchMessages, EntryRange, ErrorCode
from magnetar_wire.limits import MAX_BATCH_MESSAGES

__all__ = ["Acknowledged", "acknowledge", "check_ranges", "read_acknowledge"]

_MOST_ID: Final = 2**63 - 1


@dataclass(slots=True)
class Acknowledged:
    entries: list[EntriesOf] = field(default_factory=list)
    messages: list[MessagesOf] = field(default_factory=list)
    # Why some of what was named counts for nothing: to be told to who wants a receipt, when the rest counts.
    problem: BrokerError | None = None


def read_acknowledge(request: Acknowledge, log: Log) -> Acknowledged:
    """Raises `BrokerError`. Of a cumulative one: the one place that it names."""
    places = len(request.entries) + len(request.messages)
    if request.cumulative and places != 1:
        raise BrokerError(
            ErrorCode.INVALID_ARGUMENT, f"a cumulative acknowledgement has {places} positions: exactly one is needed"
        )
    checked = check_ranges(request.entries, log)
    messages = [_messages(one) for one in request.messages]
    problem = _foreign(request, log)
    if problem is not None:
        messages = [one for one in messages if log.floor < one[0].ledger_id <= log.last.ledger_id]
    if request.cumulative and request.entries:
        [one] = request.entries
        checked = [(one.ledger_id, one.first_entry_id, one.last_entry_id)] if problem is None else []
    return Acknowledged(checked, messages, problem)


def _foreign(request: Acknowledge, log: Log) -> BrokerError | None:
    """What of it the log can't ever have had. A ledger in between that it has not is taken for one that was trimmed."""
    floor, last = log.floor, log.last
    places = chain(
        ((one.ledger_id, one.last_entry_id) for one in request.entries),
        ((one.ledger_id, one.entry_id) for one in request.messages),
    )
    for ledger_id, entry_id in places:
        if floor < ledger_id <= last.ledger_id:
            continue
        position = Position(ledger_id, entry_id)
        if is_of_another_incarnation(log, ledger_id):
            return another_incarnation(log, position)
        return BrokerError(
            ErrorCode.INVALID_ARGUMENT, f"{position} can't be acknowledged: the topic's last entry is {last}"
        )
    return None


def acknowledge(
    request: Acknowledge,
    acknowledged: Acknowledged,
    log: Log,
    cursor: Cursor,
    dispatch: DispatchRule,
    consumer: ConsumerState,
) -> int:
    """About how many entries that finished. Raises `BrokerError`, and then none are."""
    before = cursor.mark_delete
    if not acknowledged.entries and not acknowledged.messages:
        count = 0
    elif request.cumulative:
        count = _acknowledge_up_to(acknowledged, log, cursor)
    else:
        count = _acknowledge_each(acknowledged, log, cursor, dispatch, consumer)
    if cursor.mark_delete != before:
        dispatch.acknowledged_up_to(cursor.mark_delete)
    return count


def _acknowledge_up_to(acknowledged: Acknowledged, log: Log, cursor: Cursor) -> int:
    place: MessagesOf
    if acknowledged.messages:
        place = acknowledged.messages[0]
    else:
        ledger_id, _, last = acknowledged.entries[0]
        place = Position(ledger_id, last), 0, 0
    if place[0] > log.last:
        raise BrokerError(
            ErrorCode.INVALID_ARGUMENT,
            f"{place[0]} can't be acknowledged cumulatively: the topic's last entry is {log.last}",
        )
    before = cursor.mark_delete
    cursor.acknowledge_up_to(*place)
    return log.entries_between(before, cursor.mark_delete) if cursor.mark_delete > before else 0


def _acknowledge_each(
    acknowledged: Acknowledged, log: Log, cursor: Cursor, dispatch: DispatchRule, consumer: ConsumerState
) -> int:
    sizes = {position: size for position, _, size in acknowledged.messages}
    done = cursor.acknowledge(acknowledged.entries, acknowledged.messages)
    count = len(done)
    for ledger_id, first, last in acknowledged.entries:
        dispatch.acknowledged(consumer, ledger_id, first, last)
        if first == last:
            count += 1
        else:
            count += log.entries_between(Position(ledger_id, first - 1), Position(ledger_id, last))
    for position in done:
        dispatch.acknowledged(consumer, position.ledger_id, position.entry_id, position.entry_id)
        sizes.pop(position, None)
    for position, size in sizes.items():
        if now := cursor.acknowledged_messages(position).bit_count():
            dispatch.acknowledged_messages(consumer, position, size - now)
    return count


def check_ranges(ranges: Iterable[EntryRange], log: Log) -> list[EntriesOf]:
    """What of them the log may have, none twice: work for a range is bounded by what there is, whatever is asked.

    Raises `BrokerError`.
    """
    named = [(one.ledger_id, one.first_entry_id, one.last_entry_id) for one in ranges]
    for ledger_id, first, last in named:
        if ledger_id > _MOST_ID or last > _MOST_ID or first > last:
            raise BrokerError(
                ErrorCode.INVALID_ARGUMENT,
                f"entries {first} … {last} of ledger {ledger_id} are not a valid range: ids are below 2^63, "
                "the lower one first",
            )
    if len(named) > 1:
        named.sort()
    kept: list[EntriesOf] = []
    end_of, end = -1, -1
    for ledger_id, first, last in named:
        if ledger_id != end_of:
            end_of, end = ledger_id, _last_entry(log, ledger_id)
        last = min(last, end)
        if first > last:
            continue
        if kept and kept[-1][0] == ledger_id and first <= kept[-1][2] + 1:
            kept[-1] = (ledger_id, kept[-1][1], max(last, kept[-1][2]))
        else:
            kept.append((ledger_id, first, last))
    return kept


def _last_entry(log: Log, ledger_id: int) -> int:
    """Of a ledger in the log; -1: there is none."""
    last = log.last
    if ledger_id == last.ledger_id:
        return last.entry_id
    end = log.ledger_end(ledger_id)
    return -1 if end is None else end


def _messages(one: BatchMessages) -> MessagesOf:
    if one.ledger_id > _MOST_ID or one.entry_id > _MOST_ID:
        raise BrokerError(
            ErrorCode.INVALID_ARGUMENT, f"{one.ledger_id}:{one.entry_id} is not a valid entry: ids are below 2^63"
        )
    if not 0 < one.batch_size <= MAX_BATCH_MESSAGES:
        raise BrokerError(
            ErrorCode.INVALID_ARGUMENT,
            f"entry {one.ledger_id}:{one.entry_id} is declared as a batch of {one.batch_size} messages: use "
            f"1 … {MAX_BATCH_MESSAGES}",
        )
    bits = int.from_bytes(one.messages, "little") if len(one.messages) <= one.batch_size // 8 + 1 else -1
    if bits <= 0 or bits >> one.batch_size:
        raise BrokerError(
            ErrorCode.INVALID_ARGUMENT,
            f"the {len(one.messages)} bytes that acknowledge messages of entry "
            f"{one.ledger_id}:{one.entry_id}, a batch of {one.batch_size}, are invalid: name at least one "
            "message, and none outside of the batch",
        )
    return Position(one.ledger_id, one.entry_id), bits, one.batch_size
