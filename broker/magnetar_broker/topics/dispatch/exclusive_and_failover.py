"""Exclusive and Failover: one consumer is served, and gets everything in order.

What was delivered and is not acknowledged is all that stands between the cursor and the reading position, so nothing is
kept of it: a redelivery, or another consumer's turn, reads again from behind the mark-delete position. Nothing bounds
how much that is, as nothing grows with it.

A consumer that is displaced while it is connected has deliveries on their way, and acknowledgements: both end with its
epoch. An epoch begins for the one who takes over, too, and tells it that the subscription has changed hands.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from magnetar_broker.managed_ledger.position import Position
from magnetar_broker.topics.dispatch.active_choice import choose_active
from magnetar_broker.topics.dispatch.consumer_state import ConsumerState
from magnetar_broker.topics.dispatch.dispatch_rule import (
    Assignment,
    ConsumerUpdates,
    Deliverable,
    DispatchLimits,
    DispatchRule,
    ReadRequest,
)
from magnetar_broker.topics.dispatch.redelivery_counts import RedeliveryCounts

__all__ = ["SingleActiveRule"]


class SingleActiveRule(DispatchRule):
    def __init__(self, limits: DispatchLimits, mark_delete: Position, partition: int = -1) -> None:
        super().__init__(limits, mark_delete)
        self._partition = partition
        self._active: ConsumerState | None = None
        self._past = RedeliveryCounts()
        # Entries before it were delivered since reading last began behind the mark-delete position.
        self._delivered_up_to = self.read_position

    def _left(self, consumer: ConsumerState) -> None:
        pass

    def _joined_or_left(self, mark_delete: Position, joined: ConsumerState | None = None) -> ConsumerUpdates:
        changes = ConsumerUpdates()
        before, self._active = self._active, choose_active(self.consumers, self._partition)
        if self._active is before:
            return changes
        if before is not None:
            self._rewind(mark_delete)
            changes.rewound = True
            if before in self.consumers:
                before.begin_epoch(self._next_epoch(), acknowledgements_end=True)
                changes.epochs.append(before)
                changes.active.append((before, False))
        if self._active is not None:
            if self._active is not joined:
                self._active.begin_epoch(self._next_epoch(), acknowledgements_end=True)
                changes.epochs.append(self._active)
            changes.active.append((self._active, True))
        return changes

    def is_active(self, consumer: ConsumerState) -> bool:
        return consumer is self._active

    def ready(self, consumer: ConsumerState) -> None:
        pass

    def redeliver(
        self, consumer: ConsumerState, epoch: int, ranges: Iterable[tuple[int, int, int]], mark_delete: Position
    ) -> ConsumerUpdates:
        if consumer is not self._active or epoch != consumer.epoch:
            return ConsumerUpdates()  # that comes again anyway
        consumer.begin_epoch(self._next_epoch(), acknowledgements_end=False)
        self._rewind(mark_delete)
        return ConsumerUpdates(epochs=[consumer], rewound=True)

    def _rewind(self, mark_delete: Position) -> None:
        begin = mark_delete.next
        if self._delivered_up_to > begin:
            self._past.delivered_up_to(self._delivered_up_to)
        self.read_position = self._delivered_up_to = begin

    def acknowledged(self, consumer: ConsumerState, ledger_id: int, first: int, last: int) -> None:
        pass

    def acknowledged_messages(self, consumer: ConsumerState, position: Position, left: int) -> None:
        pass

    def acknowledged_up_to(self, mark_delete: Position) -> None:
        self._past.acknowledged_up_to(mark_delete)
        self.read_position = max(self.read_position, mark_delete.next)

    def moved(self, mark_delete: Position) -> None:
        super().moved(mark_delete)
        self._delivered_up_to = self.read_position

    def _forget(self) -> None:
        self._past.clear()

    def next_read(self) -> ReadRequest | None:
        active = self._active
        if active is None or active.permits <= 0 or (capacity_bytes := active.outlet.capacity_bytes()) <= 0:
            return None
        entries, size = self._entries_for(active.permits), min(capacity_bytes, self.limits.max_read_bytes)
        return ReadRequest([], self.read_position, entries, size, active.outlet)

    def assign(
        self, entries: Sequence[Deliverable], reading: ReadRequest, behind: Position | None
    ) -> Iterator[Assignment]:
        assert behind is not None
        self._learn_size(entries)
        active = self._active
        if active is None:
            return
        dealt: list[Deliverable] = []
        capacity_bytes, past = active.outlet.capacity_bytes(), self._past if self._past else None
        for one in entries:
            entry = one.entry
            if active.permits <= 0 or capacity_bytes <= 0:
                # It is read again when it can be delivered.
                behind = entry.position
                break
            if past is not None:
                one.redelivery_count = past.count(entry.position)
            active.permits -= entry.messages
            capacity_bytes -= len(entry.stored)
            dealt.append(one)
        self.read_position = max(self.read_position, behind)
        if dealt:
            self._delivered_up_to = max(self._delivered_up_to, behind)
            yield active, dealt

    def not_read(self, reading: ReadRequest) -> None:
        pass

    @property
    def redelivery_entries(self) -> int:
        return 0

    def blocked_by(self) -> str:
        active = self._active
        if active is None:
            return "no consumer is connected"
        if active.permits <= 0:
            return f"consumer {active.name} has granted no permits: its receiver queue is full"
        if active.outlet.capacity_bytes() <= 0:
            return f"the connection to consumer {active.name} can't keep up"
        return ""
