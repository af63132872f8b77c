"""Acknowledgements: checked, passed to the cursor and the dispatch rule, and reported when they are durable.

`read_acknowledge` checks a client's request, which may name anything. `acknowledge` passes it to the cursor and the
rule: it counts at once. `AckReceipts` completes the receipts that clients requested when the cursor is saved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

from magnetar_broker.cursors.ack_state import LedgerRange, PartialBatch
from magnetar_broker.cursors.cursor import Cursor
from magnetar_broker.errors import BrokerError
from magnetar_broker.managed_ledger.interface import Log
from magnetar_broker.managed_ledger.position import Position
from magnetar_broker.topics.client_positions import is_of_another_incarnation, make_incarnation_error
from magnetar_broker.topics.dispatch.base_consumer import BaseConsumer
from magnetar_broker.topics.dispatch.dispatch_rule import DispatchRule
from magnetar_broker.topics.topic_tasks import TopicTasks
from magnetar_protos.broker_pb2 import Acknowledge, BatchMessages, EntryRange, ErrorCode
from magnetar_wire.limits import MAX_BATCH_MESSAGES

__all__ = ["AckReceipts", "Acknowledged", "ReceiptDone", "acknowledge", "check_ranges", "read_acknowledge"]

_MAX_ID: Final = 2**63 - 1


@dataclass(slots=True)
class Acknowledged:
    """The part of a request that counts."""

    entries: list[LedgerRange] = field(default_factory=list)
    messages: list[PartialBatch] = field(default_factory=list)
    # Why the rest does not count. It is reported after this part was acknowledged.
    problem: BrokerError | None = None


def read_acknowledge(request: Acknowledge, log: Log) -> Acknowledged:
    """Check a request. A cumulative one names one position, its last. Raises `BrokerError`."""
    named = len(request.entries) + len(request.messages)
    if request.cumulative and named != 1:
        raise BrokerError(
            ErrorCode.INVALID_ARGUMENT, f"a cumulative acknowledgement has {named} positions: exactly one is needed"
        )
    checked = check_ranges(request.entries, log)
    messages = [_read_messages(one) for one in request.messages]
    problem = _find_foreign(request, log)
    if problem is not None:
        messages = [one for one in messages if log.floor < one[0].ledger_id <= log.last.ledger_id]
    if request.cumulative and request.entries:
        [one] = request.entries
        checked = [(one.ledger_id, one.first_entry_id, one.last_entry_id)] if problem is None else []
    return Acknowledged(checked, messages, problem)


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


def acknowledge(
    request: Acknowledge,
    acknowledged: Acknowledged,
    log: Log,
    cursor: Cursor,
    rule: DispatchRule,
    consumer: BaseConsumer,
) -> int:
    """Acknowledge messages, and return about how many entries were completed. Raises `BrokerError`; then none are."""
    before = cursor.mark_delete
    if not acknowledged.entries and not acknowledged.messages:
        count = 0
    elif request.cumulative:
        count = _acknowledge_up_to(acknowledged, log, cursor)
    else:
        count = _acknowledge_each(acknowledged, log, cursor, rule, consumer)
    if cursor.mark_delete != before:
        rule.record_acknowledged_up_to(cursor.mark_delete)
    return count


def _acknowledge_up_to(acknowledged: Acknowledged, log: Log, cursor: Cursor) -> int:
    bits = batch_size = 0
    if acknowledged.messages:
        position, bits, batch_size = acknowledged.messages[0]
    else:
        ledger_id, _, last = acknowledged.entries[0]
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
    acknowledged: Acknowledged, log: Log, cursor: Cursor, rule: DispatchRule, consumer: BaseConsumer
) -> int:
    sizes = {position: size for position, _, size in acknowledged.messages}
    completed = cursor.acknowledge(acknowledged.entries, acknowledged.messages)
    count = len(completed)
    for ledger_id, first, last in acknowledged.entries:
        rule.record_acknowledged(consumer, ledger_id, first, last)
        if first == last:
            count += 1
        else:
            count += log.entries_between(Position(ledger_id, first - 1), Position(ledger_id, last))
    for position in completed:
        rule.record_acknowledged(consumer, position.ledger_id, position.entry_id, position.entry_id)
        sizes.pop(position, None)
    for position, size in sizes.items():
        if acknowledged_bits := cursor.get_acknowledged_messages(position):
            rule.record_acknowledged_messages(consumer, position, size - acknowledged_bits.bit_count())
    return count


# Called with the error, or None when all earlier acknowledgements are durable.
ReceiptDone = Callable[[BrokerError | None], object]


class AckReceipts:
    """Receipts that a subscription's clients wait for. One save of the cursor completes all that were requested before
    it began. The task that saves exists only while receipts are waited for."""

    __slots__ = ("_being_saved", "_cursor", "_error", "_on_idle", "_tasks", "_waiting", "is_saving")

    def __init__(self, cursor: Cursor, tasks: TopicTasks, on_idle: Callable[[], object]) -> None:
        self._cursor = cursor
        self._tasks = tasks
        # Called when no receipt is waited for any more.
        self._on_idle = on_idle
        # Receipts that the next save completes, and those that the present one does.
        self._waiting: list[ReceiptDone] = []
        self._being_saved: list[ReceiptDone] = []
        self.is_saving = False
        self._error: BrokerError | None = None

    def add(self, done: ReceiptDone) -> None:
        if self._error is not None:
            done(self._error)
            return
        self._waiting.append(done)
        if not self.is_saving:
            self.is_saving = True
            self._tasks.spawn(self._save())

    def fail(self, error: BrokerError) -> None:
        """Complete all receipts with an error, now and later: the topic is closed, and the save will be cancelled."""
        self._error = error
        waiting, self._waiting = self._being_saved + self._waiting, []
        self._being_saved = []
        for done in waiting:
            done(error)

    async def _save(self) -> None:
        try:
            while self._waiting:
                self._being_saved, self._waiting = self._waiting, []
                error: BrokerError | None = None
                try:
                    await self._cursor.wait_until_saved()
                except BrokerError as problem:
                    error = problem
                saved, self._being_saved = self._being_saved, []
                for done in saved:
                    done(error)
        finally:
            self.is_saving = False
            self._on_idle()
