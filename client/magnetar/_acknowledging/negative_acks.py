"""Positions of negatively acknowledged messages, from the application's call until their redelivery is requested.

The position of a nacked message's entry waits in the `NackSchedule` for its redelivery delay. Due times are rounded up
to a tenth of the shortest delay, so that entries that were nacked at about the same time are requested together, and a
consumer needs one timer.

Redelivery is by entry. A second nack of an entry has no effect while the entry waits, or after its redelivery was
requested since its delivery: another redelivery would bring back messages that the application is processing.

When the connection breaks, or an epoch ends for another reason, the broker redelivers everything unacknowledged at
once. Nacks of messages that were delivered before are dropped.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterable
from typing import Any, Final, Generic, TypeVar

from magnetar._acknowledging.ack_targets import AckTarget
from magnetar._acknowledging.ack_timeouts import AckTimeoutTracker
from magnetar._acknowledging.redelivery_backoff import RedeliveryBackoff, find_delay_s
from magnetar._message import Message
from magnetar._threads.loop_inbox import CallSoon, LoopInbox
from magnetar_wire.clock import Clock, Timer

__all__ = ["NackSchedule", "NegativeAcksTracker"]

Partition = TypeVar("Partition", bound=Hashable)

# The time for which entries are collected, at least and at most.
_SHORTEST_TICK_S: Final = 0.001
_LONGEST_TICK_S: Final = 1.0


class NegativeAcksTracker:
    """The nacks of one consumer. Its timer requests the redelivery of entries that are due."""

    def __init__(
        self, backoff: RedeliveryBackoff, clock: Clock, call_soon: CallSoon, before_redelivery: Callable[[], object]
    ) -> None:
        """`before_redelivery` adds collected acknowledgements: messages in them must not be redelivered."""
        self._backoff = backoff
        self._clock = clock
        self._before_redelivery = before_redelivery
        self._inbox: LoopInbox[tuple[float, AckTarget]] = LoopInbox(call_soon, self._schedule, self._schedule, 2**31)
        self._scheduled: NackSchedule[Any] = NackSchedule(backoff.min_delay_ms / 1000)
        # Called with a partition, and the positions of entries whose redelivery was requested.
        self.on_sent: Callable[[Any, Iterable[tuple[int, int]]], object] | None = None
        # None: messages don't time out.
        self.timeouts: AckTimeoutTracker | None = None
        self._timer: Timer | None = None
        self._timer_due_s = 0.0
        self._is_closed = False
        # Called on the loop with a message that was negatively acknowledged. Returns True if it becomes a dead letter.
        self.take_dead: Callable[[Message[Any]], bool] = lambda _: False

    def add(self, target: AckTarget) -> None:
        """Redeliver the message when its delay is over. From any thread."""
        self._inbox.add((self._clock.monotonic(), target))

    def forget_partition(self, partition: object) -> None:
        """Drop the partition's nacks: the broker redelivers all its unacknowledged messages anyway."""
        self._scheduled.forget_partition(partition)

    def close(self) -> None:
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _schedule(self) -> None:
        if self._is_closed:
            return
        nacked = self._inbox.drain()
        if self.timeouts is not None:
            self.timeouts.find_received()
        for nacked_at_s, target in nacked:
            self._add_target(target, nacked_at_s, may_be_dead=True)
        self._set_timer()

    def redeliver_later(self, target: AckTarget) -> None:
        """Redeliver a message that could not be stored as a letter, when its delay is over. On the loop."""
        if not self._is_closed:
            self._add_target(target, self._clock.monotonic(), may_be_dead=False)
            self._set_timer()

    def _add_target(self, target: AckTarget, nacked_at_s: float, *, may_be_dead: bool) -> None:
        entry = target._entry if isinstance(target, Message) else target
        partition = entry.epoch.origin
        if entry.epoch is not partition.epoch or not partition.is_connected:  # it is redelivered anyway
            return
        if self.timeouts is not None:
            self.timeouts.remove(target)
        redelivery_count = 0
        if isinstance(target, Message):
            delivered = target._entry
            if delivered.nacked or (may_be_dead and self.take_dead(target)):
                return
            delivered.nacked = True
            redelivery_count = delivered.redelivery_count
        position = (entry.ledger_id, entry.entry_id)
        self._scheduled.add_entry(partition, position, nacked_at_s + find_delay_s(self._backoff, redelivery_count))

    def _set_timer(self) -> None:
        due_s = self._scheduled.next_due_s()
        if self._timer is not None:
            if due_s == self._timer_due_s:
                return
            self._timer.cancel()
            self._timer = None
        if due_s is not None:
            self._timer_due_s = due_s
            self._timer = self._clock.call_later(due_s - self._clock.monotonic(), self._redeliver_due)

    def _redeliver_due(self) -> None:
        self._timer = None
        due = self._scheduled.pop_due(self._clock.monotonic())
        if due:
            self._before_redelivery()
        for partition, positions in due.items():
            partition.redeliver(positions)
            if self.on_sent is not None:
                self.on_sent(partition, positions)
        self._set_timer()


class NackSchedule(Generic[Partition]):
    """Entries and when they are due, by their partition."""

    def __init__(self, shortest_delay_s: float) -> None:
        self._tick_s = min(max(shortest_delay_s / 10, _SHORTEST_TICK_S), _LONGEST_TICK_S)
        # Tick → entries that are due then. `_ticks` is a heap of the keys, and may have some that were removed.
        self._due: dict[int, dict[Partition, dict[tuple[int, int], None]]] = {}
        self._ticks: list[int] = []
        # Partition → its entries.
        self._waiting: dict[Partition, dict[tuple[int, int], None]] = {}

    def add_entry(self, partition: Partition, position: tuple[int, int], due_s: float) -> None:
        waiting = self._waiting.setdefault(partition, {})
        if position in waiting:
            return
        waiting[position] = None
        tick = -int(-due_s // self._tick_s)
        if tick not in self._due:
            self._due[tick] = {}
            heapq.heappush(self._ticks, tick)
        self._due[tick].setdefault(partition, {})[position] = None

    def forget_partition(self, partition: Partition) -> None:
        self._waiting.pop(partition, None)
        for entries in self._due.values():
            entries.pop(partition, None)

    def next_due_s(self) -> float | None:
        while self._ticks and not self._due.get(self._ticks[0]):
            self._due.pop(heapq.heappop(self._ticks), None)
        return self._ticks[0] * self._tick_s if self._ticks else None

    def pop_due(self, now_s: float) -> dict[Partition, list[tuple[int, int]]]:
        """Remove the entries that are due. Return them by partition, each once, in order."""
        popped: dict[Partition, dict[tuple[int, int], None]] = {}
        while self._ticks and self._ticks[0] * self._tick_s <= now_s:
            for partition, positions in self._due.pop(heapq.heappop(self._ticks), {}).items():
                popped.setdefault(partition, {}).update(positions)
                waiting = self._waiting.get(partition, {})
                for position in positions:
                    waiting.pop(position, None)
                if not waiting:
                    self._waiting.pop(partition, None)
        return {partition: sorted(positions) for partition, positions in popped.items()}
