"""Key_Shared: the entries of a key go to one consumer at a time, in order.

key_order.py decides which consumer gets an entry, and explains what keeps a key in order. The rule decides when: the
consumers with capacity get the entries that wait for them, in turn, before new entries are read.

Entries wait as positions. Some of them stay in memory (`dispatcher_max_read_size_bytes` for each consumer, and at most
half of the broker's cache, which they are in), the others are read again when they can be delivered. At most
`max_waiting_per_subscription` entries wait, and `max_waiting_per_consumer` for each consumer: then nothing new is read.

All consumers of a subscription have the same mode, and agree on `allow_out_of_order_delivery`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

from magnetar_broker.errors import BrokerError
from magnetar_broker.managed_ledger.interface import Log
from magnetar_broker.managed_ledger.log_entry import LogEntry
from magnetar_broker.position import LedgerRange, Position
from magnetar_broker.topics.dispatch.base_consumer import BaseConsumer
from magnetar_broker.topics.dispatch.delivery_capacity import Deliverable
from magnetar_broker.topics.dispatch.dispatch_rule import (
    Assignment,
    ConsumerUpdates,
    DispatchContext,
    DispatchLimits,
    DispatchRead,
)
from magnetar_broker.topics.dispatch.individual_delivery import IndividualDeliveryRule
from magnetar_broker.topics.dispatch.key_order import KeyOrder
from magnetar_broker.topics.dispatch.key_selectors import HashRing, KeySelector, SplitRanges, StickyRanges
from magnetar_broker.topics.dispatch.key_shared_policy import KeySharedPolicy, SlotRange
from magnetar_broker.topics.dispatch.key_shared_reasons import find_consumers_of_held_keys, find_waiting_keys
from magnetar_broker.topics.dispatch.waiting_keys import WaitingEntries
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_wire import delivery_reasons
from magnetar_wire.delivery_reasons import DeliveryReason
from magnetar_wire.entry_keys import has_several_keys

__all__ = ["KeySharedRule"]


class KeySharedRule(IndividualDeliveryRule):
    def __init__(self, limits: DispatchLimits, mark_delete: Position, context: DispatchContext | None = None) -> None:
        super().__init__(limits, mark_delete, context)
        # That of the first consumer. The selector is chosen by it.
        self.policy = KeySharedPolicy()
        self.order = self._create_order()
        # Of the waiting entries, those that are not read again.
        self._in_memory = WaitingEntries(self.context.cache)
        # The consumers that may have capacity, in the order of their turns: an ordered set.
        self._able: dict[BaseConsumer, None] = {}

    # Consumers.

    def join(self, consumer: BaseConsumer, mark_delete: Position) -> ConsumerUpdates:
        if not self.consumers:
            self.policy = consumer.key_shared
            self.order = self._create_order()
        elif not self.policy.fits(consumer.key_shared):
            raise BrokerError(
                ErrorCode.CONSUMER_BUSY,
                f"the connected consumers of the Key_Shared subscription have {_describe(self.policy)}, and consumer "
                f"{consumer.name} has {_describe(consumer.key_shared)}: use the same policy for all",
            )
        self.order.join(consumer)
        return super().join(consumer, mark_delete)

    def _create_order(self) -> KeyOrder:
        return KeyOrder(self._create_selector(), allow_out_of_order_delivery=self.policy.allow_out_of_order_delivery)

    def _create_selector(self) -> KeySelector:
        if self.policy.is_sticky:
            return StickyRanges()
        if self.limits.key_shared_uses_consistent_hashing:
            return HashRing(self.limits.key_shared_points_per_consumer)
        return SplitRanges()

    def _remove(self, consumers: Collection[BaseConsumer]) -> None:
        if not self.consumers:
            self._clear_deliveries()  # the rule is not used any more
            return
        for consumer in consumers:
            self._able.pop(consumer, None)
        self.order.leave(consumers)
        self._redeliver_after_leaving(consumers)

    def recheck(self, consumer: BaseConsumer) -> None:
        if consumer.capacity.may_get_more:
            self._able[consumer] = None

    def _is_able(self, consumer: BaseConsumer) -> bool:
        """Return whether the consumer has capacity. One that has none is measured again after `recheck`."""
        if consumer not in self._able:
            return False
        if consumer.capacity.measure():
            return True
        del self._able[consumer]
        return False

    # Redelivery and acknowledgement.

    def _add_redelivery(self, ledger_id: int, entry_ids: list[int]) -> None:
        self.order.put_back([Position(ledger_id, entry_id) for entry_id in sorted(entry_ids)])

    def put_back(self, positions: Sequence[Position], entries: Iterable[LogEntry] = ()) -> None:
        self.order.put_back(positions)
        self._add_to_memory(entries)

    def record_acknowledged(self, consumer: BaseConsumer, ranges: Sequence[LedgerRange]) -> None:
        self._discard(self._release_from_all(consumer, ranges), ranges)
        if self._counts:
            self._counts.take_each(ranges)

    def record_acknowledged_up_to(self, mark_delete: Position) -> None:
        super().record_acknowledged_up_to(mark_delete)
        if ranges := self.order.find_up_to(mark_delete):
            self._discard(ranges, ranges)

    def record_lost(self, position: Position) -> None:
        super().record_lost(position)
        ranges = [(position.ledger_id, position.entry_id, position.entry_id)]
        self._discard(ranges, ranges)

    def _discard(self, waiting: Iterable[LedgerRange], ranges: Sequence[LedgerRange]) -> None:
        """Remove acknowledged entries. `waiting`: ranges of those that may wait."""
        for position in self.order.discard_waiting(waiting):
            self._in_memory.take(position)
        self.order.discard(ranges)

    def _clear_deliveries(self) -> None:
        super()._clear_deliveries()
        self.order.clear()
        self._in_memory.clear()

    # Dispatch.

    @property
    def max_waiting(self) -> int:
        """The maximum number of waiting entries; 0: there is none."""
        bounds = (
            self.limits.max_waiting_per_consumer * max(1, len(self.consumers)),
            self.limits.max_waiting_per_subscription,
        )
        return min((bound for bound in bounds if bound), default=0)

    @property
    def has_max_waiting(self) -> bool:
        """Whether nothing new is read until waiting entries are delivered."""
        return 0 < self.max_waiting <= len(self.order.waiting)

    def next_read(self, log: Log) -> DispatchRead | None:
        if self.has_max_unacked:
            return None
        if len(self.order.waiting) and (read := self._read_waiting()) is not None:
            return read
        if self.read_position > log.last or self.has_max_waiting:
            return None
        permits = sum(one.capacity.permits for one in list(self._able) if self._is_able(one))
        if not permits:
            return None
        return self._create_read([], self._read_size.entries_for(permits))

    def _create_read(self, positions: list[Position], count: int, entries: Sequence[LogEntry] = ()) -> DispatchRead:
        return DispatchRead(positions, self.read_position, count, self.limits.max_read_bytes, None, entries=entries)

    def _read_waiting(self) -> DispatchRead | None:
        """Remove the first waiting entries of a consumer with capacity, and read them: entries that are all in memory,
        or none of which is. The next read is another consumer's turn."""
        waiting = self.order.waiting
        for consumer in list(self._able):
            if waiting.has_queue(consumer) and self._is_able(consumer):
                del self._able[consumer]
                self._able[consumer] = None
                positions = waiting.first_of(consumer, self._read_size.entries_for(consumer.capacity.permits))
                entries = self._take_from_memory(positions)
                count = len(entries) or sum(1 for _ in takewhile(lambda one: one not in self._in_memory, positions))
                waiting.take(consumer, count)
                return self._create_read(positions[:count], count, entries)
        return None

    def _take_from_memory(self, positions: Iterable[Position]) -> list[LogEntry]:
        """Return the first of these entries, up to one that is not in memory."""
        taken: list[LogEntry] = []
        for position in positions:
            if (entry := self._in_memory.take(position)) is None:
                break
            taken.append(entry)
        return taken

    def assign(self, entries: Sequence[Deliverable], read: DispatchRead, end: Position | None) -> Iterator[Assignment]:
        self._read_size.record(entries)
        if end is not None:
            self.read_position = max(self.read_position, end)
            self._count_mixed_batches(entries)
        elif len(entries) < len(read.positions):
            self._forget_missing(entries, read.positions)
        for consumer, group in self._group_by_consumer(entries, are_new=end is not None).items():
            ready = group.find_before(self.order.waiting.first_of(consumer, 1))
            may_take = ready and not self.has_max_unacked and self._is_able(consumer)
            count = consumer.capacity.take(ready) if may_take else 0
            if count < len(group.entries):
                self._wait(consumer, group.entries[count:], group.tags[count:])
            if count:
                taken = group.entries[:count]
                self._set_redelivery_counts(taken)
                self.order.record_deliveries(consumer, taken, group.tags[:count])
                yield consumer, taken

    def _count_mixed_batches(self, entries: Sequence[Deliverable]) -> None:
        for one in entries:
            if one.entry.batch_size > 1 and has_several_keys(one.entry.stored):
                self.context.count_mixed_batch()

    def _forget_missing(self, entries: Sequence[Deliverable], positions: Iterable[Position]) -> None:
        """Forget entries that do not exist any more."""
        found = {one.entry.position for one in entries}
        for position in positions:
            if position not in found and not self.order.is_waiting(position):
                self.record_lost(position)

    def _group_by_consumer(self, entries: Sequence[Deliverable], *, are_new: bool) -> dict[BaseConsumer, _Group]:
        """Return the entries that consumers get, now or when they have capacity. The others are blocked, and wait.
        `are_new`: they were not read before."""
        groups: dict[BaseConsumer, _Group] = {}
        blocked = _Group([], [])
        tags = self.order.find_tags(entries, are_new=are_new)
        for one, tag, consumer in zip(entries, tags, self.order.find_consumers(tags), strict=True):
            if consumer is None:
                group = blocked
            elif consumer in groups:
                group = groups[consumer]
            else:
                group = groups[consumer] = _Group([], [])
            group.entries.append(one)
            group.tags.append(tag)
        if blocked.entries:
            self._wait(None, blocked.entries, blocked.tags)
        return groups

    def _wait(self, consumer: BaseConsumer | None, entries: Sequence[Deliverable], tags: Sequence[int]) -> None:
        """Let entries that were read wait for the capacity of their consumer. None: they are blocked."""
        self.order.wait([one.entry.position for one in entries], tags, [consumer] * len(entries))
        self._add_to_memory(one.entry for one in entries)

    def _add_to_memory(self, entries: Iterable[LogEntry]) -> None:
        """Keep waiting entries that were read in memory, until its maximum size is reached."""
        limit = self.limits.max_read_bytes
        max_bytes = min(limit * len(self.consumers), max(limit, self.context.cache.max_bytes // 2))
        for entry in entries:
            self._in_memory.add(entry, max_bytes)

    # Statistics.

    @property
    def redelivery_entries(self) -> int:
        return len(self.order.waiting)

    def find_ranges(self, consumer: BaseConsumer) -> list[SlotRange]:
        return self.order.selector.ranges(consumer)

    def find_shortage(self) -> DeliveryReason | None:
        if (found := super().find_shortage()) is not None:
            return found
        if self.has_max_waiting:
            return delivery_reasons.LOOK_AHEAD(entries=len(self.order.waiting), limit=self.max_waiting)
        return None

    def find_waiting(self) -> Sequence[DeliveryReason]:
        some_have_capacity = super().find_shortage() is None
        return list(find_waiting_keys(self.order.waiting, self.order.held, some_have_capacity=some_have_capacity))

    def find_consumer_shortages(self) -> dict[BaseConsumer, DeliveryReason]:
        of_held = find_consumers_of_held_keys(self.order.waiting, self.order.held, self.order.selector.select)
        return of_held | super().find_consumer_shortages()


@dataclass(slots=True)
class _Group:
    """Entries for one consumer, and their hold tags (held_keys.py)."""

    entries: list[Deliverable]
    tags: list[int]

    def find_before(self, waiting: Sequence[Position]) -> Sequence[Deliverable]:
        """Return the entries before the first one that waits already."""
        if not waiting or self.entries[-1].entry.position < waiting[0]:
            return self.entries
        return [one for one in self.entries if one.entry.position < waiting[0]]


def _describe(policy: KeySharedPolicy) -> str:
    return f"the mode {policy.mode}" + (
        " and allow_out_of_order_delivery" if policy.allow_out_of_order_delivery else " and deliver in order"
    )
