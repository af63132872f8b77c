"""Negatively acknowledged messages, from the application's call until their redelivery is requested.

A nacked message waits in the `NackSchedule` for its redelivery delay. Each entry has its own due time. Due times are
rounded up to a tenth of the shortest delay, so that entries that were nacked at about the same time are requested
together, and a consumer needs one timer.

Redelivery is by entry. A second nack of an entry has no effect while the entry waits, or after its redelivery was
requested since its delivery: another redelivery would bring back messages that the application is processing.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable
from typing import Any, Final, Generic, Protocol, TypeVar

from magnetar._acknowledgments import AckTarget, CallSoon, LoopInbox
from magnetar._message import Message
from magnetar.exceptions import InvalidConfiguration
from magnetar_wire.clock import Clock, Timer

__all__ = ["FixedDelay", "MultiplierRedeliveryBackoff", "NackSchedule", "NegativeAcksTracker", "RedeliveryBackoff"]

Owner = TypeVar("Owner", bound=Hashable)

# The time for which entries are collected, at least and at most.
_SHORTEST_TICK_S: Final = 0.001
_LONGEST_TICK_S: Final = 1.0


class RedeliveryBackoff(Protocol):
    """How long a negatively acknowledged message waits for its redelivery."""

    # The shortest delay.
    min_delay_ms: float

    def next(self, redelivery_count: int) -> float:
        """Return the delay in ms of a message that was redelivered this often."""


class MultiplierRedeliveryBackoff:
    """A delay that grows with each redelivery of a message: 1 s, 2 s, 4 s … 60 s by default."""

    def __init__(self, min_delay_ms: float = 1_000, max_delay_ms: float = 60_000, multiplier: float = 2.0) -> None:
        if not (0 <= min_delay_ms <= max_delay_ms and multiplier >= 1):
            raise InvalidConfiguration(
                f"a redelivery backoff needs 0 <= min_delay_ms <= max_delay_ms and a multiplier of at least 1, "
                f"not {min_delay_ms=}, {max_delay_ms=}, {multiplier=}"
            )
        self.min_delay_ms = min_delay_ms
        self.max_delay_ms = max_delay_ms
        self.multiplier = multiplier

    def next(self, redelivery_count: int) -> float:
        try:
            return min(self.min_delay_ms * self.multiplier ** max(redelivery_count, 0), self.max_delay_ms)
        except OverflowError:
            return self.max_delay_ms


class FixedDelay:
    """The same delay for each redelivery."""

    def __init__(self, delay_ms: float) -> None:
        self.min_delay_ms = delay_ms

    def next(self, redelivery_count: int) -> float:
        return self.min_delay_ms


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
        # By partition.
        self._scheduled: NackSchedule[Any] = NackSchedule(backoff.min_delay_ms / 1000)
        self._timer: Timer | None = None
        self._timer_due_s = 0.0
        self._is_closed = False

    def add(self, target: AckTarget) -> None:
        """Redeliver the message when its delay is over. From any thread."""
        self._inbox.add((self._clock.monotonic(), target))

    def forget_partition(self, partition: object) -> None:
        """Drop the partition's nacks: the broker redelivers all its unacknowledged messages anyway."""
        self._scheduled.forget_owner(partition)

    def close(self) -> None:
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _schedule(self) -> None:
        if self._is_closed:
            return
        for nacked_at_s, target in self._inbox.drain():
            redelivery_count = 0
            if isinstance(target, Message):
                entry = target._entry
                partition = entry.epoch.origin
                if entry.nacked or entry.epoch is not partition.epoch:  # it is redelivered anyway
                    continue
                entry.nacked = True
                position, redelivery_count = (entry.ledger_id, entry.entry_id), entry.redelivery_count
            else:
                partition, position = target.epoch.origin, (target.ledger_id, target.entry_id)
            self._scheduled.add_entry(partition, position, nacked_at_s + self._backoff.next(redelivery_count) / 1000)
        self._set_timer()

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
        self._set_timer()


class NackSchedule(Generic[Owner]):
    """Entries and when they are due, by their owner."""

    def __init__(self, shortest_delay_s: float) -> None:
        self._tick_s = min(max(shortest_delay_s / 10, _SHORTEST_TICK_S), _LONGEST_TICK_S)
        # Tick → entries that are due then. `_ticks` is a heap of the keys, and may have some that were removed.
        self._due: dict[int, dict[Owner, dict[tuple[int, int], None]]] = {}
        self._ticks: list[int] = []
        # Owner → its entries.
        self._waiting: dict[Owner, dict[tuple[int, int], None]] = {}

    def add_entry(self, owner: Owner, position: tuple[int, int], due_s: float) -> None:
        waiting = self._waiting.setdefault(owner, {})
        if position in waiting:
            return
        waiting[position] = None
        tick = -int(-due_s // self._tick_s)
        if tick not in self._due:
            self._due[tick] = {}
            heapq.heappush(self._ticks, tick)
        self._due[tick].setdefault(owner, {})[position] = None

    def forget_owner(self, owner: Owner) -> None:
        self._waiting.pop(owner, None)
        for entries in self._due.values():
            entries.pop(owner, None)

    def next_due_s(self) -> float | None:
        while self._ticks and not self._due.get(self._ticks[0]):
            self._due.pop(heapq.heappop(self._ticks), None)
        return self._ticks[0] * self._tick_s if self._ticks else None

    def pop_due(self, now_s: float) -> dict[Owner, list[tuple[int, int]]]:
        """Remove the entries that are due. Return them by owner, each once, in order."""
        popped: dict[Owner, dict[tuple[int, int], None]] = {}
        while self._ticks and self._ticks[0] * self._tick_s <= now_s:
            for owner, positions in self._due.pop(heapq.heappop(self._ticks), {}).items():
                popped.setdefault(owner, {}).update(positions)
                waiting = self._waiting.get(owner, {})
                for position in positions:
                    waiting.pop(position, None)
                if not waiting:
                    self._waiting.pop(owner, None)
        return {owner: sorted(positions) for owner, positions in popped.items()}
