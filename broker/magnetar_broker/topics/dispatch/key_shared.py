"""Key_Shared: the entries of a key go to one consumer at a time, in order.

An entry's **slot** follows from the key of its first message. A selector assigns each slot to one consumer
(key_selectors.py). When consumers join or leave, slots move. Two rules guarantee the order of a key:

- A slot is delivered to its new consumer only when the old one has acknowledged all that it got of it
  (held_keys.py). What the old one negatively acknowledged is redelivered to it, while it is connected.
- An entry waits behind earlier waiting entries of its slot (waiting_keys.py).

So a slot that has not moved is never held up, and one that waits holds up no other:

    A has unacknowledged 1:0 of slot 7, and B joins, and takes over slots 0 … 32,767
    1:1 of slot 7 waits. 1:2 of slot 9, of which A has nothing, goes to B, and 1:3 of slot 40,000 to A
    A acknowledges 1:0. Nobody holds slot 7 any more, and 1:1 goes to B

Entries wait as positions, and are delivered before new entries are read. Some of them stay in memory
(`dispatcher_max_read_size_bytes`, in the broker's cache), the others are read again when they can be delivered. At most
`max_waiting_per_subscription` entries wait, and `max_waiting_per_consumer` for each consumer: then nothing new is read.

With `allow_out_of_order_delivery` neither rule applies: nothing is recorded of slots, and all entries go to the present
consumer of their slot. All consumers of a subscription agree in that, and in their mode.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace

from magnetar_broker.errors import BrokerError
from magnetar_broker.managed_ledger.interface import Log
from magnetar_broker.managed_ledger.log_entry import LogEntry
from magnetar_broker.position import Position
from magnetar_broker.topics.dispatch.base_consumer import BaseConsumer
from magnetar_broker.topics.dispatch.delivery_capacity import Deliverable
from magnetar_broker.topics.dispatch.dispatch_rule import (
    Assignment,
    ConsumerUpdates,
    DispatchContext,
    DispatchLimits,
    DispatchRead,
)
from magnetar_broker.topics.dispatch.entry_counts import EntryCounts
from magnetar_broker.topics.dispatch.held_keys import HeldKeys
from magnetar_broker.topics.dispatch.individual_delivery import IndividualDeliveryRule
from magnetar_broker.topics.dispatch.key_selectors import HashRing, KeySelector, SplitRanges, StickyRanges
from magnetar_broker.topics.dispatch.key_shared_policy import KeySharedPolicy, SlotRange
from magnetar_broker.topics.dispatch.key_shared_reasons import find_waiting_keys
from magnetar_broker.topics.dispatch.waiting_keys import WaitingEntries, WaitingKeys
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_wire import delivery_reasons
from magnetar_wire.delivery_reasons import DeliveryReason
from magnetar_wire.entry_keys import has_several_keys, hash_entry_key

__all__ = ["DrainingSlot", "KeySharedRule"]


@dataclass(frozen=True, slots=True)
class DrainingSlot:
    """A slot that has another consumer now, and waits until its old one has acknowledged its entries."""

    slot: int
    # Of the old consumer.
    unacked_entries: int
    # How many deliveries waited for it.
    blocked: int


class KeySharedRule(IndividualDeliveryRule):
    def __init__(self, limits: DispatchLimits, mark_delete: Position, context: DispatchContext | None = None) -> None:
        super().__init__(limits, mark_delete, context)
        # That of the first consumer. The selector is chosen by it.
        self.policy = KeySharedPolicy()
        self.selector: KeySelector = SplitRanges()
        # The slots of all entries that were delivered or wait, and are not acknowledged; plus 1.
        self._slots = EntryCounts()
        self.held = HeldKeys()
        self.waiting = WaitingKeys()
        # Of the waiting entries, those that are not read again.
        self._entries = WaitingEntries(self.context.cache)
        # The consumers that may have capacity: an ordered set.
        self._able: dict[BaseConsumer, None] = {}

    # Consumers.

    def join(self, consumer: BaseConsumer, mark_delete: Position) -> ConsumerUpdates:
        if not self.consumers:
            self.policy = consumer.key_shared
            self.selector = self._create_selector()
        elif not self.policy.fits(consumer.key_shared):
            raise BrokerError(
                ErrorCode.CONSUMER_BUSY,
                f"the connected consumers of the Key_Shared subscription have {_describe(self.policy)}, and consumer "
                f"{consumer.name} has {_describe(consumer.key_shared)}: use the same policy for all",
            )
        self.selector.join(consumer)
        return super().join(consumer, mark_delete)

    def _create_selector(self) -> KeySelector:
        if self.policy.is_sticky:
            return StickyRanges()
        if self.limits.key_shared_uses_consistent_hashing:
            return HashRing(self.limits.key_shared_points_per_consumer)
        return SplitRanges()

    def _remove(self, consumer: BaseConsumer) -> None:
        self.selector.leave(consumer)
        self.held.release_consumer(consumer)
        self._able.pop(consumer, None)
        self._redeliver_after_leaving(consumer)

    def _consumers_changed(self, mark_delete: Position, joined: BaseConsumer | None = None) -> ConsumerUpdates:
        if not self.consumers:
            self._entries.clear()
        self.held.find_draining(self.selector.select)
        self.waiting.unschedule_all()
        for slot in self.waiting.slots():
            self._schedule(slot)
        return ConsumerUpdates()

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

    # Slots.

    def _find_consumer(self, slot: int, position: Position) -> BaseConsumer | None:
        """Return the consumer that gets an entry if it is the first one of its slot. None: it waits."""
        hold = self.held.find(slot)
        if hold is None:
            return self.selector.select(slot)
        if position in hold.positions:
            return hold.consumer
        selected = self.selector.select(slot)
        if selected is hold.consumer or self.held.has_incomplete_message(slot):
            return hold.consumer
        self.held.count_blocked(slot)
        return None

    def _schedule(self, slot: int) -> None:
        """Schedule a slot with waiting entries, since its first entry, its holder or its consumer has changed."""
        if (first := self.waiting.first(slot)) is not None:
            self.waiting.schedule(slot, self._find_consumer(slot, first))

    def _wait(self, slot: int, position: Position, entry: LogEntry | None = None) -> None:
        self._slots.set(position, slot + 1)
        if entry is not None:
            self._entries.add(entry, self.limits.max_read_bytes)
        if self.waiting.add(slot, position):
            self._schedule(slot)

    def _forget(self, slot: int, position: Position) -> None:
        """Forget an entry that is acknowledged."""
        self._entries.take(position)
        if self.waiting.discard(slot, position):
            self._schedule(slot)
        if self.held.discard_entry(slot, position):
            self._schedule(slot)

    # Redelivery and acknowledgement.

    def _add_redelivery(self, ledger_id: int, entry_ids: list[int]) -> None:
        self.put_back(Position(ledger_id, entry_id) for entry_id in sorted(entry_ids))

    def put_back(self, positions: Iterable[Position]) -> None:
        for position in positions:
            if number := self._slots.get(position):  # otherwise it was acknowledged in the meantime
                self._wait(number - 1, position)

    def record_acknowledged(self, consumer: BaseConsumer, ledger_id: int, first: int, last: int) -> None:
        self._release_from_all(consumer, ledger_id, first, last)
        for entry_id, number in self._slots.find_range(ledger_id, first, last):
            self._forget(number - 1, Position(ledger_id, entry_id))
        self._slots.take_range(ledger_id, first, last)
        if self._counts:
            self._counts.take_range(ledger_id, first, last)

    def record_acknowledged_up_to(self, mark_delete: Position) -> None:
        super().record_acknowledged_up_to(mark_delete)
        for position, number in self._slots.find_up_to(mark_delete):
            self._forget(number - 1, position)
        self._slots.drop_up_to(mark_delete)

    def record_lost(self, position: Position) -> None:
        super().record_lost(position)
        if number := self._slots.get(position):
            self._slots.set(position, 0)
            self._forget(number - 1, position)

    def _clear_deliveries(self) -> None:
        super()._clear_deliveries()
        self._slots.clear()
        self.held.clear()
        self.waiting.clear()
        self._entries.clear()

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
        return 0 < self.max_waiting <= len(self.waiting)

    def next_read(self, log: Log) -> DispatchRead | None:
        if self.has_max_unacked:
            return None
        max_bytes = self.limits.max_read_bytes
        if len(self.waiting) and (positions := self._take_waiting()):
            entries = [entry for position in positions if (entry := self._entries.take(position)) is not None]
            return DispatchRead(positions, self.read_position, len(positions), max_bytes, None, entries=entries)
        if self.read_position > log.last or self.has_max_waiting:
            return None
        permits = sum(one.capacity.permits for one in list(self._able) if self._is_able(one))
        if not permits:
            return None
        return DispatchRead([], self.read_position, self._read_size.entries_for(permits), max_bytes, None)

    def _take_waiting(self) -> list[Position]:
        """Remove the first waiting entries that can be delivered, and return them in order: entries that are all in
        memory, or none of which is."""
        waiting = self.waiting
        # The first entry of each consumer with capacity, and how many more it probably takes.
        heads: list[tuple[Position, int, int, BaseConsumer]] = []
        left: dict[BaseConsumer, int] = {}
        for consumer in list(self._able):
            if (first := waiting.find_first(consumer)) is not None and self._is_able(consumer):
                heads.append((*first, consumer.number, consumer))
                left[consumer] = self._read_size.entries_for(consumer.capacity.permits)
        heapify(heads)
        taken: list[Position] = []
        while heads and len(taken) < self.limits.max_read_entries:
            position, slot, number, consumer = heads[0]
            if taken and (position in self._entries) != (taken[0] in self._entries):
                break
            waiting.take_first(slot)
            self._schedule(slot)
            taken.append(position)
            left[consumer] -= 1
            following = waiting.find_first(consumer) if left[consumer] else None
            if following is None:
                heappop(heads)
            else:
                heapreplace(heads, (*following, number, consumer))
        taken.sort()  # a slot may be scheduled for another consumer after its first entry
        return taken

    def assign(self, entries: Sequence[Deliverable], read: DispatchRead, end: Position | None) -> Iterator[Assignment]:
        self._read_size.record(entries)
        if end is not None:
            self.read_position = max(self.read_position, end)
            self._count_mixed_batches(entries)
        elif len(entries) < len(read.positions):
            self._forget_missing(entries, read.positions)
        for consumer, group in self._group_by_consumer(entries).items():
            may_take = not self.has_max_unacked and self._is_able(consumer)
            count = consumer.capacity.take(group.entries) if may_take else 0
            for one, slot in zip(group.entries[count:], group.slots[count:], strict=True):
                self._wait(slot, one.entry.position, one.entry)
            if count:
                taken = group.entries[:count]
                self._record_deliveries(consumer, taken, group.slots)
                yield consumer, taken

    def _count_mixed_batches(self, entries: Sequence[Deliverable]) -> None:
        for one in entries:
            if one.entry.batch_size > 1 and has_several_keys(one.entry.stored):
                self.context.count_mixed_batch()

    def _forget_missing(self, entries: Sequence[Deliverable], positions: Iterable[Position]) -> None:
        """Forget entries that do not exist any more."""
        found = {one.entry.position for one in entries}
        for position in positions:
            number = self._slots.get(position)
            if number and position not in found and not self.waiting.has_entry(number - 1, position):
                self.record_lost(position)

    def _group_by_consumer(self, entries: Sequence[Deliverable]) -> dict[BaseConsumer, _Group]:
        groups: dict[BaseConsumer, _Group] = {}
        in_order = not self.policy.allow_out_of_order_delivery
        waiting, slots, known = self.waiting, self.selector.slots, self._slots
        for one in entries:
            position = one.entry.position
            number = known.get(position)
            slot = number - 1 if number else hash_entry_key(one.entry.stored) % slots
            first = waiting.first(slot) if in_order else None
            consumer = None
            if first is None or first > position:
                consumer = self._find_consumer(slot, position)
            if consumer is None:
                self._wait(slot, position, one.entry)
                continue
            if (group := groups.get(consumer)) is None:
                group = groups[consumer] = _Group([], [])
            group.entries.append(one)
            group.slots.append(slot)
        return groups

    def _record_deliveries(self, consumer: BaseConsumer, entries: Sequence[Deliverable], slots: Sequence[int]) -> None:
        self._set_redelivery_counts(entries)
        in_order = not self.policy.allow_out_of_order_delivery
        for one, slot in zip(entries, slots, strict=False):
            position = one.entry.position
            self._slots.set(position, slot + 1)
            if in_order:
                self.held.record_delivery(slot, position, consumer)
                if one.entry.chunk is not None:
                    self.held.record_chunk(slot, position, one.entry.chunk)

    # Statistics.

    @property
    def redelivery_entries(self) -> int:
        return len(self.waiting)

    def find_ranges(self, consumer: BaseConsumer) -> list[SlotRange]:
        return self.selector.ranges(consumer)

    def find_draining(self) -> dict[BaseConsumer, list[DrainingSlot]]:
        """Return the slots that consumers drain. A consumer that drains none is missing."""
        found: dict[BaseConsumer, list[DrainingSlot]] = {}
        for slot, hold, blocked in self.held.draining():
            found.setdefault(hold.consumer, []).append(DrainingSlot(slot, len(hold.positions), blocked))
        return found

    def find_shortage(self) -> DeliveryReason | None:
        if (found := super().find_shortage()) is not None:
            return found
        if self.has_max_waiting:
            return delivery_reasons.LOOK_AHEAD(entries=len(self.waiting), limit=self.max_waiting)
        return None

    def find_waiting(self) -> Sequence[DeliveryReason]:
        some_have_capacity = super().find_shortage() is None
        return list(
            find_waiting_keys(self.waiting, self.held, self.selector.select, some_have_capacity=some_have_capacity)
        )


@dataclass(slots=True)
class _Group:
    """Entries for one consumer, and their slots."""

    entries: list[Deliverable]
    slots: list[int]


def _describe(policy: KeySharedPolicy) -> str:
    return f"the mode {policy.mode}" + (
        " and allow_out_of_order_delivery" if policy.allow_out_of_order_delivery else " and deliver in order"
    )
