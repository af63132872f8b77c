"""Reads entries for a subscription by its dispatch rule, and delivers them to the consumers that the rule chooses.

`dispatch` is called whenever entries may be deliverable: permits were granted, messages acknowledged or appended, or
an outbox has capacity again. It delivers everything that the log returns without waiting (`read_nowait`). Other entries
are read by a task, one at a time; after a rewind the old task runs on beside the next, and its entries are dropped. A
subscription that waits has no task, timer or buffer.

An entry that is lost on all bookies is skipped: it counts as acknowledged, because otherwise the subscription would
wait for it for ever, and hold the log's storage. The log reports the loss.

The next entries are read while the last ones are being sent: an outbox has more capacity than is sent at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from magnetar_broker.cursors.cursor import Cursor
from magnetar_broker.errors import BrokerError, TopicUnloaded, UnreadableEntry
from magnetar_broker.managed_ledger.interface import Log
from magnetar_broker.managed_ledger.log_entry import LogEntry
from magnetar_broker.position import Position
from magnetar_broker.topics.dispatch.delivery_capacity import Deliverable
from magnetar_broker.topics.dispatch.dispatch_rates import SubscriptionDispatchRates
from magnetar_broker.topics.dispatch.dispatch_rule import DispatchRead, DispatchRule
from magnetar_broker.topics.topic_tasks import TopicTasks
from magnetar_wire import delivery_reasons
from magnetar_wire.clock import Clock, Timer
from magnetar_wire.delivery_reasons import DeliveryReason

__all__ = ["Dispatcher"]

_log = logging.getLogger(__name__)
# After a read that failed: the first and the longest pause.
_PAUSE_S: Final = 0.1
_MAX_PAUSE_S: Final = 5.0
# Holds back only entries that were not read.
_LOOK_AHEAD: Final = delivery_reasons.LOOK_AHEAD.code


class Dispatcher:
    __slots__ = (
        "_clock",
        "_cursor",
        "_failures",
        "_is_dispatching",
        "_is_stopped",
        "_is_unloaded",
        "_log",
        "_must_dispatch_again",
        "_read",
        "_reading_since_ms",
        "_tasks",
        "_timer",
        "is_paused",
        "name",
        "rates",
        "read_error",
        "rule",
        "skipped_entries",
    )

    def __init__(
        self,
        name: str,
        rule: DispatchRule,
        log: Log,
        cursor: Cursor,
        clock: Clock,
        tasks: TopicTasks,
        rates: SubscriptionDispatchRates,
    ) -> None:
        self.name = name
        self.rule = rule
        self.rates = rates
        self._log = log
        self._cursor = cursor
        self._clock = clock
        self._tasks = tasks
        # The cursor is being moved.
        self.is_paused = False
        # What a task reads. None: no task reads, or its entries will be dropped.
        self._read: DispatchRead | None = None
        self._reading_since_ms = 0
        # Lost entries.
        self.skipped_entries = 0
        self._is_dispatching = False
        # `dispatch` was called while a task read.
        self._must_dispatch_again = False
        self._is_stopped = False
        # The error of the last read, the number of failed reads in a row, and the timer of the next attempt.
        self.read_error = ""
        self._is_unloaded = False
        self._failures = 0
        self._timer: Timer | None = None

    @property
    def is_reading(self) -> bool:
        return self._read is not None

    def find_obstacle(self) -> DeliveryReason | None:
        """Return why nothing is dispatched now, though there may be entries. None: nothing holds them back."""
        if self.read_error:
            position = self.rule.read_position
            if self._is_unloaded:
                return delivery_reasons.TOPIC_CLOSING(error=self.read_error)
            return delivery_reasons.READ_FAILED(
                times=self._failures, position=str(position), ledger=position.ledger_id, error=self.read_error
            )
        shortage = self.rule.find_shortage()
        if shortage is not None and (shortage.code != _LOOK_AHEAD or self.rule.read_position <= self._log.last):
            return shortage
        if (wait := self.rates.find_wait()) is not None:
            return wait
        return delivery_reasons.READING(since_ms=self._reading_since_ms) if self.is_reading else None

    def rewind(self) -> None:
        """Drop the entries that are being read."""
        self._read = None

    def stop(self) -> None:
        self._is_stopped = True
        self._read = None
        self.rates.stop()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def dispatch(self) -> None:
        """Deliver entries while there are some, and consumers have capacity."""
        if self._read is not None:
            self._must_dispatch_again = True
            return
        if (
            self._is_dispatching
            or self.is_paused
            or self._is_stopped
            or self._timer is not None
            or self.rates.is_waiting
        ):
            return
        self._is_dispatching = True
        rule, log, cursor = self.rule, self._log, self._cursor
        try:
            while not self._is_stopped and (read := rule.next_read(log)) is not None:
                if not self.rates.may_read(read, log, rule.read_position, self.dispatch):
                    rule.put_back(read.positions, read.entries)
                    return
                if read.entries:
                    self._deliver(read, self._make_deliverables(read.entries))
                    continue
                if read.positions:
                    self._start_read(read)
                    return
                # Usual if clients acknowledge in order: no entry needs to be looked up in the cursor.
                none_acknowledged = not cursor.may_be_acknowledged_from(read.start)
                if not none_acknowledged:
                    read.start = self._find_unacknowledged(read.start)
                    if read.start > log.last:
                        return
                try:
                    entries = log.read_nowait(read.start, read.max_entries, read.max_bytes)
                except TopicUnloaded as error:
                    self.read_error, self._is_unloaded = str(error), True
                    return  # the topic is about to be closed
                if entries is None:
                    self._start_read(read)
                    return
                if not entries:
                    return
                if self.read_error:
                    self._record_success()
                self._deliver(read, self._drop_acknowledged(entries), entries[-1].position.next)
        finally:
            self._is_dispatching = False

    def _find_unacknowledged(self, position: Position) -> Position:
        """Return the first position from here on that is not acknowledged."""
        if position == self._cursor.mark_delete.next:
            return position
        return self._cursor.find_unacknowledged_after(position.previous)

    def _deliver(self, read: DispatchRead, deliverable: list[Deliverable], end: Position | None = None) -> None:
        """`end`: where reading continues; None if `read` named its positions."""
        if (allowed := self.rates.count_allowed(deliverable)) < len(deliverable):
            left, deliverable = deliverable[allowed:], deliverable[:allowed]
            if end is None:
                self.rule.put_back([one.entry.position for one in left], [one.entry for one in left])
            else:
                end = left[0].entry.position
        for consumer, assigned in self.rule.assign(deliverable, read, end):
            consumer.deliver(assigned)
            self.rates.record_dispatched(assigned)

    def _drop_acknowledged(self, entries: Sequence[LogEntry]) -> list[Deliverable]:
        cursor = self._cursor
        if not entries or not cursor.may_be_acknowledged_from(entries[0].position):
            return [Deliverable(entry) for entry in entries]
        return self._make_deliverables([entry for entry in entries if not cursor.is_acknowledged(entry.position)])

    def _make_deliverables(self, entries: Sequence[LogEntry]) -> list[Deliverable]:
        """Add the acknowledged messages of batches."""
        find = self._cursor.get_acknowledged_messages
        return [Deliverable(entry, find(entry.position) if entry.batch_size else 0) for entry in entries]

    # Reads that are waited for.

    def _start_read(self, read: DispatchRead) -> None:
        self._read = read
        self._reading_since_ms = self._clock.time_ms()
        self._must_dispatch_again = False
        read.measured = None
        if read.only_for is not None:
            read.only_for.capacity.reserve(read.max_bytes)
        task = self._tasks.spawn(self._read_and_deliver(read))
        task.add_done_callback(lambda _: _return_reserved(read))  # it may be cancelled before it has begun

    async def _read_and_deliver(self, read: DispatchRead) -> None:
        skipped = self.skipped_entries
        entries = await self._read_entries(read)
        _return_reserved(read)
        if entries is None or self._read is not read or self._is_stopped:
            return
        self._read = None
        self._record_success()
        found = [entry for entry in entries if entry is not None]
        if found or read.positions:
            self._deliver(read, self._drop_acknowledged(found), None if read.positions else found[-1].position.next)
            self.dispatch()
        elif self._must_dispatch_again or skipped != self.skipped_entries:
            self.dispatch()

    async def _read_entries(self, read: DispatchRead) -> Sequence[LogEntry | None] | None:
        """Return None if the read has failed."""
        start, are_chosen = read.start, bool(read.positions)
        while True:
            try:
                if are_chosen:
                    return await self._read_positions(read)
                if start > self._log.last:
                    return []
                return await self._log.read(start, read.max_entries, read.max_bytes)
            except UnreadableEntry as error:
                if self._read is not read or self._is_stopped:
                    return None
                self._skip_lost(error.position)
                read.positions = [position for position in read.positions if position != error.position]
                start = self._find_unacknowledged(self._log.first_after(error.position))
            except BrokerError as error:
                self._fail_read(read, error)
                return None
            except Exception as error:  # noqa: BLE001 (a subscription must not stop in silence)
                _log.exception("Subscription %s: reading failed because of an internal error", self.name)
                self._fail_read(read, error)
                return None

    async def _read_positions(self, read: DispatchRead) -> Sequence[LogEntry | None]:
        if not read.positions:
            return []
        entries = await self._log.read_at(read.positions, read.max_bytes)
        if self._read is read:  # otherwise the rule has dropped them
            self.rule.put_back(read.positions[len(entries) :])
        return entries

    def _skip_lost(self, lost: Position) -> None:
        self.skipped_entries += 1
        self._cursor.acknowledge([(lost.ledger_id, lost.entry_id, lost.entry_id)])
        self.rule.record_lost(lost)
        _log.error("Subscription %s: entry %s is lost, and is skipped", self.name, lost)

    def _fail_read(self, read: DispatchRead, error: Exception) -> None:
        if self._read is not read or self._is_stopped:
            return
        self._read = None
        self.rule.put_back(read.positions)
        self.read_error = str(error) or type(error).__name__
        if isinstance(error, TopicUnloaded):
            self._is_unloaded = True
            return  # the topic is about to be closed
        pause_s = min(_MAX_PAUSE_S, _PAUSE_S * 2 ** min(self._failures, 10))
        self._failures += 1
        _log.warning(
            "Subscription %s: reading failed, and is retried in %.1f s: %s", self.name, pause_s, self.read_error
        )
        self._timer = self._clock.call_later(pause_s, self.retry)

    def _record_success(self) -> None:
        self.read_error, self._failures = "", 0

    def retry(self) -> None:
        """Read now, even if a read has failed and would be retried later."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.dispatch()


def _return_reserved(read: DispatchRead) -> None:
    """Return the reserved memory, once."""
    consumer, read.only_for = read.only_for, None
    if consumer is not None:
        consumer.capacity.reserve(-read.max_bytes)
