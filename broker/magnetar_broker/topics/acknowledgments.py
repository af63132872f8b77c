"""Acknowledgements: checked, passed to the cursor and the dispatch rule, and reported when they are durable.

`check_acknowledgement` checks a client's request, which may name anything. `apply_acknowledgement` passes it to the
cursor and the rule: it counts at once. `AckReceipts` completes the receipts that clients requested when the cursor is
saved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Final

from magnetar_broker.cursors.ack_state import PartialBatch
from magnetar_broker.cursors.cursor import Cursor, SaveDone, report_saved
from magnetar_broker.errors import BrokerError
from magnetar_broker.managed_ledger.interface import Log
from magnetar_broker.position import LedgerRange, Position
from magnetar_broker.topics.client_positions import is_of_another_incarnation, make_incarnation_error
from magnetar_broker.topics.dispatch.base_consumer import BaseConsumer
from magnetar_broker.topics.dispatch.dispatch_rule import DispatchRule
from magnetar_protos.broker_pb2 import Acknowledge, BatchMessages, EntryRange, ErrorCode
from magnetar_wire.limits import MAX_BATCH_MESSAGES

__all__ = ["AckReceipts", "CheckedAcknowledgement", "apply_acknowledgement", "check_acknowledgement", "check_ranges"]

_MAX_ID: Final = 2**63 - 1


@dataclass(slots=True)
class CheckedAcknowledgement:
    """The part of a request that will count."""

    entries: list[LedgerRange] = field(default_factory=list)
    messages: list[PartialBatch] = field(default_factory=list)
    # Why the rest does not count. It is reported after this part was acknowledged.
    problem: BrokerError | None = None


def check_acknowledgement(request: Acknowledge, log: Log) -> CheckedAcknowledgement:
    """Check a request. A cumulative one names one position, its last. Raises `BrokerError`."""
    named = len(request.entries) + len(request.messages)
    if request.cumulative and named != 1:
        raise BrokerError(
            ErrorCode.INVALID_ARGUMENT, f"a cumulative acknowledgement has {named} positions: exactly one is needed"
        )
    ranges = check_ranges(request.entries, log)
    messages = [_read_messages(one) for one in request.messages]
    problem = _find_foreign(request, log)
    if problem is not None:
        messages = [one for one in messages if log.floor < one[0].ledger_id <= log.last.ledger_id]
    if request.cumulative and request.entries:
        [one] = request.entries
        ranges = [(one.ledger_id, one.first_entry_id, one.last_entry_id)] if problem is None else []
    return CheckedAcknowledgement(ranges, messages, problem)


def _find_foreign(request: Acknowledge, log: Log) -> BrokerError | None:
    """Return an error if the request names a position that the log never had. A ledger between its first and last one
    that it does not have was probably trimmed."""
    floor, last = log.floor, log.last
    named = chain(
        ((one.ledger_id, one.last_entry_id) for one in request.entries),
        ((one.ledger_id, one.entry_id) for one in request.messages),
    )
    for ledger_id, entry_id in named:
        if floor < ledger_id <= last.ledger_id:
            continue
        position = Position(ledger_id, entry_id)
        if is_of_another_incarnation(log, ledger_id):
            return make_incarnation_error(log, position)
        return BrokerError(
            ErrorCode.INVALID_ARGUMENT, f"{position} can't be acknowledged: the topic's last entry is {last}"
        )
    return None


def check_ranges(ranges: Iterable[EntryRange], log: Log) -> list[LedgerRange]:
    """Return the parts of the ranges that the log may have, sorted and merged. So the work for a range is bounded by
    the log. Raises `BrokerError`."""
    named = [(one.ledger_id, one.first_entry_id, one.last_entry_id) for one in ranges]
    for ledger_id, first, last in named:
        if ledger_id > _MAX_ID or last > _MAX_ID or first > last:
            raise BrokerError(
                ErrorCode.INVALID_ARGUMENT,
                f"entries {first} … {last} of ledger {ledger_id} are not a valid range: ids are below 2^63, "
                "the lower one first",
            )
    if len(named) > 1:
        named.sort()
    merged: list[LedgerRange] = []
    end_ledger_id, end = -1, -1
    for ledger_id, first, last in named:
        if ledger_id != end_ledger_id:
            end_ledger_id, end = ledger_id, _last_entry(log, ledger_id)
        last = min(last, end)
        if first > last:
            continue
        if merged and merged[-1][0] == ledger_id and first <= merged[-1][2] + 1:
            merged[-1] = (ledger_id, merged[-1][1], max(last, merged[-1][2]))
        else:
            merged.append((ledger_id, first, last))
    return merged


def _last_entry(log: Log, ledger_id: int) -> int:
    """Return the last entry id of a ledger of the log; -1: it has none, or the log does not have the ledger."""
    last = log.last
    if ledger_id == last.ledger_id:
        return last.entry_id
    end = log.ledger_end(ledger_id)
    return -1 if end is None else end


def _read_messages(one: BatchMessages) -> PartialBatch:
    if one.ledger_id > _MAX_ID or one.entry_id > _MAX_ID:
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


def apply_acknowledgement(
    request: Acknowledge,
    checked: CheckedAcknowledgement,
    log: Log,
    cursor: Cursor,
    rule: DispatchRule,
    consumer: BaseConsumer,
) -> int:
    """Acknowledge messages, and return about how many entries were completed. Raises `BrokerError`; then none are."""
    before = cursor.mark_delete
    if not checked.entries and not checked.messages:
        count = 0
    elif request.cumulative:
        count = _acknowledge_up_to(checked, log, cursor)
    else:
        count = _acknowledge_each(checked, log, cursor, rule, consumer)
    if cursor.mark_delete != before:
        rule.record_acknowledged_up_to(cursor.mark_delete)
    return count


def _acknowledge_up_to(checked: CheckedAcknowledgement, log: Log, cursor: Cursor) -> int:
    bits = batch_size = 0
    if checked.messages:
        position, bits, batch_size = checked.messages[0]
    else:
        ledger_id, _, last = checked.entries[0]
        position = Position(ledger_id, last)
    if position > log.last:
        raise BrokerError(
            ErrorCode.INVALID_ARGUMENT,
            f"{position} can't be acknowledged cumulatively: the topic's last entry is {log.last}",
        )
    before = cursor.mark_delete
    cursor.acknowledge_up_to(position, bits, batch_size)
    return log.entries_between(before, cursor.mark_delete) if cursor.mark_delete > before else 0


def _acknowledge_each(
    checked: CheckedAcknowledgement, log: Log, cursor: Cursor, rule: DispatchRule, consumer: BaseConsumer
) -> int:
    sizes = {position: size for position, _, size in checked.messages}
    completed = cursor.acknowledge(checked.entries, checked.messages)
    count = len(completed)
    for ledger_id, first, last in checked.entries:
        if first == last:
            count += 1
        else:
            count += log.entries_between(Position(ledger_id, first - 1), Position(ledger_id, last))
    ranges = [*checked.entries, *((ledger_id, entry_id, entry_id) for ledger_id, entry_id in completed)]
    rule.record_acknowledged(consumer, ranges)
    for position in completed:
        sizes.pop(position, None)
    for position, size in sizes.items():
        if acknowledged_bits := cursor.get_acknowledged_messages(position):
            rule.record_acknowledged_messages(consumer, position, size - acknowledged_bits.bit_count())
    return count


class AckReceipts:
    """Receipts that a subscription's clients wait for. The cursor completes them, several with one save."""

    __slots__ = ("_cursor", "_error", "_last_number", "_on_idle", "_waiting")

    def __init__(self, cursor: Cursor, on_idle: Callable[[], object]) -> None:
        self._cursor = cursor
        # Called when no receipt is waited for any more.
        self._on_idle = on_idle
        # Receipts that are waited for, by number.
        self._waiting: dict[int, SaveDone] = {}
        self._last_number = 0
        self._error: BrokerError | None = None

    @property
    def is_waiting(self) -> bool:
        return bool(self._waiting)

    def add(self, done: SaveDone) -> None:
        """Call `done` when all acknowledgements made before this call are durable, or with the error."""
        if self._error is not None:
            done(self._error)
            return
        self._last_number += 1
        self._waiting[self._last_number] = done
        self._cursor.call_when_saved(partial(self._complete, self._last_number))

    def _complete(self, number: int, error: BrokerError | None) -> None:
        done = self._waiting.pop(number, None)
        if done is None:  # it was failed before
            return
        report_saved(done, error)
        if not self._waiting:
            self._on_idle()

    def fail(self, error: BrokerError) -> None:
        """Complete all receipts with an error, now and later: the topic is closed."""
        self._error = error
        waiting, self._waiting = self._waiting, {}
        for done in waiting.values():
            report_saved(done, error)
