"""Exclusive and Failover: one active consumer gets all entries in order.

Everything between the cursor and the read position that is not acknowledged was delivered, so no deliveries are
recorded. A redelivery, or a change of the active consumer, reads again from the mark-delete position. Unacknowledged
messages have no limit, because no memory grows with them.

A consumer that is replaced while it is connected may have deliveries and acknowledgements in flight: both end with its
epoch. An epoch begins for the new active consumer, too, which reports that the subscription has changed hands.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from magnetar_broker.managed_ledger.interface import Log
from magnetar_broker.position import Position
from magnetar_broker.topics.dispatch.base_consumer import BaseConsumer
from magnetar_broker.topics.dispatch.delivery_capacity import Deliverable
from magnetar_broker.topics.dispatch.dispatch_rule import (
    Assignment,
    ConsumerUpdates,
    DispatchContext,
    DispatchLimits,
    DispatchRead,
    DispatchRule,
)
from magnetar_broker.topics.dispatch.redelivery_counts import RedeliveryCounts
from magnetar_wire import delivery_reasons
from magnetar_wire.delivery_reasons import DeliveryReason

__all__ = ["ExclusiveRule", "FailoverRule", "LastActiveConsumer", "choose_active"]


def choose_active(consumers: Sequence[BaseConsumer], partition: int) -> BaseConsumer | None:
    """Choose the active consumer of a Failover subscription.

    For a topic without partitions (`partition` is -1): of the consumers with the highest priority the one that
    subscribed first, so that an active consumer is not replaced by one of the same priority. For a partition: the
    consumers with the highest priority, sorted by name, share the partitions. A consumer of all partitions has the same
    name at each, so each consumer gets its share.
    """
    if not consumers:
        return None
    highest = min(consumer.priority_level for consumer in consumers)
    best = [consumer for consumer in consumers if consumer.priority_level == highest]
    if partition < 0:
        return min(best, key=lambda consumer: consumer.number)
    best.sort(key=lambda consumer: (consumer.name, consumer.number))
    return best[partition % len(best)]


class FailoverRule(DispatchRule):
    delivers_in_order = True

    def __init__(self, limits: DispatchLimits, mark_delete: Position, context: DispatchContext | None = None) -> None:
        super().__init__(limits, mark_delete, context)
        self._active: BaseConsumer | None = None
        self._counts = RedeliveryCounts()
        # Entries before it were delivered since reading began behind the mark-delete position the last time.
        self._delivered_up_to = self.read_position

    def _consumers_changed(self, mark_delete: Position, joined: BaseConsumer | None = None) -> ConsumerUpdates:
        updates = ConsumerUpdates()
        before, self._active = self._active, choose_active(self.consumers, self.context.partition)
        if self._active is before:
            return updates
        if before is not None:
            self._rewind(mark_delete)
            updates.rewound = True
            if before in self.consumers:
                before.begin_epoch(self._next_epoch(), acknowledgements_end=True)
                updates.epochs.append(before)
                updates.active.append((before, False))
        if self._active is not None:
            if self._active is not joined:
                self._active.begin_epoch(self._next_epoch(), acknowledgements_end=True)
                updates.epochs.append(self._active)
            updates.active.append((self._active, True))
        return updates

    @property
    def active_consumer(self) -> BaseConsumer | None:
        return self._active

    def is_active(self, consumer: BaseConsumer) -> bool:
        return consumer is self._active

    # Redelivery and acknowledgement.

    def redeliver(
        self, consumer: BaseConsumer, epoch: int, ranges: Iterable[tuple[int, int, int]], mark_delete: Position
    ) -> ConsumerUpdates:
        if consumer is not self._active or epoch != consumer.epoch:
            return ConsumerUpdates()  # everything is redelivered anyway
        consumer.begin_epoch(self._next_epoch(), acknowledgements_end=False)
        self._rewind(mark_delete)
        return ConsumerUpdates(epochs=[consumer], rewound=True)

    def _rewind(self, mark_delete: Position) -> None:
        begin = mark_delete.next
        if self._delivered_up_to > begin:
            self._counts.record_delivery(self._delivered_up_to)
        self.read_position = self._delivered_up_to = begin

    def record_acknowledged_up_to(self, mark_delete: Position) -> None:
        self._counts.discard_up_to(mark_delete)
        self.read_position = max(self.read_position, mark_delete.next)

    def end_move(self, mark_delete: Position) -> None:
        super().end_move(mark_delete)
        self._counts.clear()  # the active consumer may have changed since the move began
        self._delivered_up_to = self.read_position

    def _clear_deliveries(self) -> None:
        self._counts.clear()

    # Dispatch.

    def next_read(self, log: Log) -> DispatchRead | None:
        active = self._active
        if active is None or self.read_position > log.last or not active.capacity.measure():
            return None
        capacity = active.capacity
        max_entries = self._read_size.entries_for(capacity.permits)
        max_bytes = min(capacity.free_bytes, self.limits.max_read_bytes)
        return DispatchRead([], self.read_position, max_entries, max_bytes, active, active)

    def assign(self, entries: Sequence[Deliverable], read: DispatchRead, end: Position | None) -> Iterator[Assignment]:
        assert end is not None
        self._read_size.record(entries)
        active = self._active
        if active is None:
            return
        has_capacity = active is read.measured or active.capacity.measure()
        taken = entries[: active.capacity.take(entries)] if has_capacity else ()
        if len(taken) < len(entries):
            end = entries[len(taken)].entry.position  # it is read again when there is capacity
        self.read_position = max(self.read_position, end)
        if taken:
            if self._counts:
                for one in taken:
                    one.redelivery_count = self._counts.count(one.entry.position)
            self._delivered_up_to = max(self._delivered_up_to, end)
            yield active, taken

    def find_shortage(self) -> DeliveryReason | None:
        return delivery_reasons.NO_CONSUMER() if self._active is None else self._active.find_shortage()

    def find_consumer_shortages(self) -> dict[BaseConsumer, DeliveryReason]:
        found = super().find_consumer_shortages()
        active = self._active
        if active is None:
            return found
        return found | {one: self._explain_choice(active, one) for one in self.consumers if one is not active}

    def _explain_choice(self, active: BaseConsumer, other: BaseConsumer) -> DeliveryReason:
        if active.priority_level != other.priority_level:
            cause = f"its priority level is {active.priority_level}, and this one's is {other.priority_level}"
        elif self.context.partition >= 0:
            cause = "consumers of the same priority share the partitions in the order of their names"
        else:
            cause = "it subscribed first"
        return delivery_reasons.NOT_ACTIVE(active=active.name, cause=cause)


class ExclusiveRule(FailoverRule):
    max_consumers = 1


class LastActiveConsumer:
    """The name of the consumer that was active last, also while none is connected.

    A consumer may not acknowledge what it got before another one was active. A client that was disconnected learns of
    that from the cursor's number of take-overs. A consumer of the same name is the same one, reconnected. Another
    broker does not know the name, and perhaps an older number: then an acknowledgement of processed messages counts
    though another consumer was active, which is right, as a take-over undoes nothing.
    """

    __slots__ = ("name",)

    def __init__(self) -> None:
        # Empty: there was none.
        self.name = ""

    def replace(self, name: str) -> bool:
        """Record the active consumer. Return whether another one was active before."""
        before, self.name = self.name, name
        return before not in ("", name)
