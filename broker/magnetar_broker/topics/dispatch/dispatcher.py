"""What keeps a subscription's entries moving: reads what the rule asks for, and hands out what the rule deals.

It runs, at once and to the end, whenever something has happened that may let something move: permits, an
acknowledgement, a new entry, room in a stream. What the log has at hand goes out within that call; what has to be
waited for is read by a task, one at a time, which lives only as long as that takes. A subscription that waits has no
task, no timer and no buffer.

An entry that is lost on all bookies is passed over: it counts as acknowledged, or the subscription would wait for it
for ever and hold the log's storage. That the log has lost it was reported by the log.

While the last entries are still on their way into the stream, the next are read: a stream has room for more than is
sent at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

from magnetar_broker.errors import BrokerError, TopicUnloaded, UnreadableEntry
from magnetar_broker.managed_ledger.interface import Cursor, Log
from magnetar_broker.managed_ledger.log_entry import LogEntry
from magnetar_broker.managed_ledger.position import Position
from magnetar_broker.topics.dispatch.consumer_state import ConsumerState
from magnetar_broker.topics.dispatch.dispatch_rule import Deliverable, DispatchRule, ReadRequest
from magnetar_broker.topics.tasks_in_order import TopicTasks
from magnetar_wire.clock import Clock, Timer

__all__ = ["Dispatcher"]

_log = logging.getLogger(__name__)
# After a read that failed: the first pause, and the longest.
_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 5.0


class Dispatcher:
    __slots__ = (
        "_asked",
        "_clock",
        "_cursor",
        "_deliver",
        "_failures",
        "_log",
        "_reading",
        "_running",
        "_stopped",
        "_tasks",
        "_timer",
        "dispatch",
        "failed",
        "name",
        "passed_over",
        "paused",
    )

    def __init__(
        self,
        name: str,
        dispatch: DispatchRule,
        log: Log,
        cursor: Cursor,
        clock: Clock,
        tasks: TopicTasks,
        deliver: Callable[[ConsumerState, list[Deliverable]], object],
    ) -> None:
        self.name = name
        self.dispatch = dispatch
        self._log = log
        self._cursor = cursor
        self._clock = clock
        self._tasks = tasks
        self._deliver = deliver
        # The cursor is being moved.
        self.paused = False
        # What a task reads; None: it is not reading, or what it reads will be dropped.
        self._reading: ReadRequest | None = None
        # How many lost entries.
        self.passed_over = 0
        # `run` was called while it was.
        self._asked = False
        self._running = False
        self._stopped = False
        # Why the last read failed, how many have in a row, and when it is tried again.
        self.failed = ""
        self._failures = 0
        self._timer: Timer | None = None

    @property
    def reading(self) -> bool:
        return self._reading is not None

    def rewound(self) -> None:
        """What is being read is not to be assigned."""
        self._reading = None

    def stop(self) -> None:
        self._stopped = True
        self._reading = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def run(self) -> None:
        if self._reading is not None:
            self._asked = True
            return
        if self._running or self.paused or self._stopped or self._timer is not None:
            return
        self._running = True
        dispatch = self.dispatch
        try:
            while not self._stopped:
                last = self._log.last
                if dispatch.read_position > last and not dispatch.redelivery_entries:
                    return  # whoever would take something
                if (reading := dispatch.next_read()) is None:
                    return
                if reading.positions:
                    self._read_in_task(reading)
                    return
                all_open = self._all_open(reading.start)
                if not all_open:
                    reading.start = self._first_open(reading.start)
                if reading.start > last:
                    return
                try:
                    entries = self._log.read_nowait(reading.start, reading.max_entries, reading.max_bytes)
                except TopicUnloaded as error:
                    dispatch.not_read(reading)
                    self.failed = str(error)
                    return  # the topic's end comes
                if entries is None:
                    self._read_in_task(reading)
                    return
                if not entries:
                    return
                self._take(reading, entries, all_open)
        finally:
            self._running = False

    def _first_open(self, position: Position) -> Position:
        """The first place at it or behind it that is not acknowledged."""
        if position == self._cursor.mark_delete.next:
            return position
        return self._cursor.first_open_after(position.previous)

    def _all_open(self, position: Position) -> bool:
        """Nothing is acknowledged from there on, as long as clients acknowledge in order: there is no need to ask."""
        return not self._cursor.has_holes and position > self._cursor.mark_delete

    def _read_in_task(self, reading: ReadRequest) -> None:
        self._reading = reading
        self._asked = False
        if reading.outlet is not None:
            reading.outlet.reserve(reading.max_bytes)
        task = self._tasks.spawn(self._read(reading))
        task.add_done_callback(lambda _: _release(reading))  # it may be cancelled before it has begun

    async def _read(self, reading: ReadRequest) -> None:
        passed_over = self.passed_over
        entries = await self._entries(reading)
        _release(reading)
        if entries is None or self._reading is not reading or self._stopped:
            return
        self._reading = None
        self.failed, self._failures = "", 0
        found = [entry for entry in entries if entry is not None]
        if found or reading.positions:
            self._take(reading, found, bool(found) and self._all_open(found[0].position))
            self.run()
        elif self._asked or passed_over != self.passed_over:
            self.run()

    async def _entries(self, reading: ReadRequest) -> Sequence[LogEntry | None] | None:
        """None: reading has failed."""
        positions, start = reading.positions, reading.start
        while True:
            try:
                if reading.positions:
                    return await self._log.read_at(positions) if positions else []
                if start > self._log.last:
                    return []
                return await self._log.read(start, reading.max_entries, reading.max_bytes)
            except UnreadableEntry as error:
                if self._reading is not reading or self._stopped:
                    return None
                self._pass_over(error.position)
                positions = [position for position in positions if position != error.position]
                start = self._first_open(self._log.first_after(error.position))
            except BrokerError as error:
                self._failed(reading, error)
                return None
            except Exception as error:  # noqa: BLE001 (a subscription must not stop in silence)
                _log.exception("Subscription %s: reading failed because of an internal error", self.name)
                self._failed(reading, error)
                return None

    def _pass_over(self, lost: Position) -> None:
        self.passed_over += 1
        self._cursor.acknowledge([(lost.ledger_id, lost.entry_id, lost.entry_id)])
        _log.error("Subscription %s: entry %s is lost, and is skipped", self.name, lost)

    def _failed(self, reading: ReadRequest, error: Exception) -> None:
        if self._reading is not reading or self._stopped:
            return
        self._reading = None
        self.dispatch.not_read(reading)
        self.failed = str(error) or type(error).__name__
        if isinstance(error, TopicUnloaded):
            return  # the topic's end comes
        pause = min(_LONGEST_PAUSE_S, _PAUSE_S * 2 ** min(self._failures, 10))
        self._failures += 1
        _log.warning("Subscription %s: reading failed, and is retried in %.1f s: %s", self.name, pause, self.failed)
        self._timer = self._clock.call_later(pause, self._again)

    def _again(self) -> None:
        self._timer = None
        self.run()

    def _take(self, reading: ReadRequest, entries: Sequence[LogEntry], all_open: bool) -> None:
        open_entries = [Deliverable(entry) for entry in entries] if all_open else self._open(entries)
        behind = None if reading.positions else entries[-1].position.next
        for consumer, dealt in self.dispatch.assign(open_entries, reading, behind):
            self._deliver(consumer, dealt)

    def _open(self, entries: Sequence[LogEntry]) -> list[Deliverable]:
        """Those that are not acknowledged, or not all of them."""
        cursor = self._cursor
        found: list[Deliverable] = []
        for entry in entries:
            if not cursor.acknowledged(entry.position):
                acknowledged = cursor.acknowledged_messages(entry.position) if entry.batch_size else 0
                found.append(Deliverable(entry, acknowledged))
        return found


def _release(reading: ReadRequest) -> None:
    """The room that was spoken for, once."""
    outlet, reading.outlet = reading.outlet, None
    if outlet is not None:
        outlet.reserve(-reading.max_bytes)
