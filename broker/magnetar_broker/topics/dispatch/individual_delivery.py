"""Shared and Key_Shared: entries are delivered, acknowledged and redelivered one by one.

The messages that are delivered and not acknowledged are counted by consumer, and bounded. This is what the rules of
both types have in common; which consumer gets which entry is theirs.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence

from magnetar_broker.position import LedgerRange, Position
from magnetar_broker.topics.dispatch.base_consumer import BaseConsumer
from magnetar_broker.topics.dispatch.delivery_capacity import Deliverable, UnackedMessages
from magnetar_broker.topics.dispatch.dispatch_rule import ConsumerUpdates, DispatchContext, DispatchLimits, DispatchRule
from magnetar_broker.topics.dispatch.entry_counts import EntryCounts
from magnetar_broker.topics.dispatch.shortages import merge_shortages
from magnetar_wire import delivery_reasons
from magnetar_wire.delivery_reasons import DeliveryReason

__all__ = ["IndividualDeliveryRule"]


class IndividualDeliveryRule(DispatchRule):
    def __init__(self, limits: DispatchLimits, mark_delete: Position, context: DispatchContext | None = None) -> None:
        super().__init__(limits, mark_delete, context)
        # How often consumers have requested the redelivery of entries that are not acknowledged.
        self._counts = EntryCounts()
        self._unacked = UnackedMessages(limits.max_unacked_per_consumer, limits.max_unacked_per_subscription)

    def set_limits(self, limits: DispatchLimits) -> None:
        super().set_limits(limits)
        self._unacked.set_bounds(
            limits.max_unacked_per_consumer,
            limits.max_unacked_per_subscription,
            [consumer.capacity.unacked_messages for consumer in self.consumers],
        )
        for consumer in self.consumers:
            self.recheck(consumer)

    def join(self, consumer: BaseConsumer, mark_delete: Position) -> ConsumerUpdates:
        consumer.capacity.bound_unacked(self._unacked)
        return super().join(consumer, mark_delete)

    # Redelivery.

    def redeliver(
        self, consumer: BaseConsumer, epoch: int, ranges: Iterable[LedgerRange], mark_delete: Position
    ) -> ConsumerUpdates:
        if epoch != consumer.epoch:
            return ConsumerUpdates()  # after a seek the consumer does not have these entries any more
        if named := list(ranges):
            for ledger_id, first, last in named:
                self._redeliver_entries(ledger_id, consumer.capacity.release_range(ledger_id, first, last))
            self.recheck(consumer)
            return ConsumerUpdates()
        for ledger_id, entry_ids in consumer.capacity.release_all():
            self._redeliver_entries(ledger_id, entry_ids)
        # Entries in flight are redelivered, too. If the client handed them out, they would come before earlier ones.
        consumer.begin_epoch(self._next_epoch(), acknowledgements_end=False)
        self.recheck(consumer)
        return ConsumerUpdates(epochs=[consumer])

    def _redeliver_after_leaving(self, consumers: Iterable[BaseConsumer]) -> None:
        """Let all entries of consumers that have left be redelivered, without counting that: their applications may not
        have received what their clients had prefetched, and must not lose it to a dead letter topic."""
        found: dict[int, list[int]] = {}
        for consumer in consumers:
            for ledger_id, entry_ids in consumer.capacity.release_all():
                found.setdefault(ledger_id, []).extend(entry_ids)
        for ledger_id, entry_ids in sorted(found.items()):
            self._add_redelivery(ledger_id, entry_ids)

    def _redeliver_entries(self, ledger_id: int, entry_ids: list[int]) -> None:
        self._counts.increment(ledger_id, entry_ids)
        self._add_redelivery(ledger_id, entry_ids)

    @abstractmethod
    def _add_redelivery(self, ledger_id: int, entry_ids: list[int]) -> None:
        """Let these entries be redelivered."""

    def _set_redelivery_counts(self, entries: Sequence[Deliverable]) -> None:
        if self._counts:
            for one in entries:
                one.redelivery_count = self._counts.get(one.entry.position)

    # Acknowledgement.

    def record_lost(self, position: Position) -> None:
        self._counts.take_range(position.ledger_id, position.entry_id, position.entry_id)

    def _release_from_all(self, consumer: BaseConsumer, ranges: Sequence[LedgerRange]) -> Sequence[LedgerRange]:
        """Release entries that the consumer has acknowledged. Return the ranges with entries that no consumer had:
        they may wait. It may return others, too."""
        missing = self._release(consumer, ranges)
        for other in self.consumers:
            if not missing:
                break
            if other is not consumer:
                missing = self._release(other, missing)
        return missing

    def _release(self, consumer: BaseConsumer, ranges: Sequence[LedgerRange]) -> Sequence[LedgerRange]:
        """Release acknowledged entries that the consumer has. Return the ranges of which it had not all."""
        missing = consumer.capacity.release_each(ranges)
        if len(missing) < len(ranges) or any(first < last for _, first, last in missing):
            self.recheck(consumer)
        return missing

    def record_acknowledged_messages(self, consumer: BaseConsumer, position: Position, left: int) -> None:
        for owner in (consumer, *self.consumers):
            if owner.capacity.has_unacked(position):
                owner.capacity.set_unacked(position, left)
                self.recheck(owner)
                return

    def record_acknowledged_up_to(self, mark_delete: Position) -> None:
        for consumer in self.consumers:
            if consumer.capacity.release_up_to(mark_delete):
                self.recheck(consumer)
        self._counts.drop_up_to(mark_delete)
        self.read_position = max(self.read_position, mark_delete.next)

    def _clear_deliveries(self) -> None:
        for consumer in self.consumers:
            consumer.capacity.release_all()
        self._counts.clear()

    # Statistics.

    @property
    def unacked_messages(self) -> int:
        return self._unacked.total

    @property
    def has_max_unacked(self) -> bool:
        return self._unacked.free_messages <= 0

    def find_shortage(self) -> DeliveryReason | None:
        if not self.consumers:
            return delivery_reasons.NO_CONSUMER()
        if self._unacked.free_messages <= 0:
            return delivery_reasons.MAX_UNACKED_SUBSCRIPTION(
                messages=self._unacked.total, limit=self._unacked.max_per_subscription
            )
        return merge_shortages(self.consumers)
