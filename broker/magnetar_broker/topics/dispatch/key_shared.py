"""Key_Shared: the entries of a key go to one consumer at a time, in order.

An entry's **slot** follows from the key of its first message. A selector assigns each slot to one consumer
(key_selectors.py). When consumers join or leave, slots move. Two rules guarantee the order of a key:

- A slot is delivered to its new consumer only when the old one has acknowledged all that it got of it
  (held_keys.py). What the old one negatively acknowledged is redelivered to it, while it is connected.
- An entry waits behind earlier ones that wait for the same consumer's capacity, or for its slot (waiting_keys.py).

So a slot that has not moved waits for its consumer's capacity only, and one that waits holds up no other:

    A has unacknowledged 1:0 of slot 7, and B joins, and takes over slots 0 … 32,767
    1:1 of slot 7 waits. 1:2 of slot 9, of which A has nothing, goes to B, and 1:3 of slot 40,000 to A
    A acknowledges 1:0. Nobody holds slot 7 any more, and 1:1 goes to B

Entries wait as positions, and are delivered before new entries are read. Some of them stay in memory
(`dispatcher_max_read_size_bytes` for each consumer, and at most half of the broker's cache, which they are in), the
others are read again when they can be delivered. At most `max_waiting_per_subscription` entries wait, and
`max_waiting_per_consumer` for each consumer: then nothing new is read.

With `allow_out_of_order_delivery` neither rule applies: nothing is recorded of slots, and all entries go to the present
consumer of their slot. All consumers of a subscription agree in that, and in their mode.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import compress, takewhile

from magnetar_broker.errors import BrokerError
from magnetar_broker.managed_ledger.interface import Log
from magnetar_broker.managed_ledger.log_entry import Chunk, LogEntry
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
from magnetar_broker.topics.dispatch.entry_counts import EntryCounts
from magnetar_broker.topics.dispatch.held_keys import HeldKeys, find_slot, find_slots, number_without_hold
from magnetar_broker.topics.dispatch.individual_delivery import IndividualDeliveryRule
from magnetar_broker.topics.dispatch.key_selectors import HashRing, KeySelector, SlotSet, SplitRanges, StickyRanges
from magnetar_broker.topics.dispatch.key_shared_policy import KeySharedPolicy, SlotRange
from magnetar_broker.topics.dispatch.key_shared_reasons import find_consumers_of_held_keys, find_waiting_keys
from magnetar_broker.topics.dispatch.waiting_keys import WaitingEntries, WaitingKeys
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_wire import delivery_reasons
from magnetar_wire.delivery_reasons import DeliveryReason
from magnetar_wire.entry_keys import has_several_keys, hash_entry_key

__all__ = ["KeySharedRule"]


class KeySharedRule(IndividualDeliveryRule):
    def __init__(self, limits: DispatchLimits, mark_delete: Position, context: DispatchContext | None = None) -> None:
        super().__init__(limits, mark_delete, context)
        # That of the first consumer. The selector is chosen by it.
        self.policy = KeySharedPolicy()
        self.selector: KeySelector = SplitRanges()
        # The numbers (held_keys.py) of all entries that were delivered or wait, and are not acknowledged. No entry from
        # `read_position` on has one.
        self._numbers = EntryCounts()
        self.held = HeldKeys()
        self.waiting = WaitingKeys()
        # Of the waiting entries, those that are not read again.
        self._entries = WaitingEntries(self.context.cache)
        # The consumers that may have capacity, in the order of their turns: an ordered set.
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
        updates = super().join(consumer, mark_delete)
        self._move_slots(self.selector.ranges(consumer))
        return updates

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
        if len(consumers) == 1:
            moved = self.selector.ranges(next(iter(consumers)))
        else:  # to find theirs takes longer than to look at all entries
            moved = [(0, self.selector.slots - 1)]
        self.selector.leave(consumers)
        released = self.held.release_consumers(consumers)
        for consumer in consumers:
            self._able.pop(consumer, None)
        taken = self.waiting.take_queues(consumers)
        self._move_slots(moved)
        self.waiting.unblock(released, self.selector.select)
        self._redeliver_after_leaving(consumers)
        self.put_back(taken)

    def _move_slots(self, ranges: Iterable[SlotRange]) -> None:
        """The slots in these ranges may have other consumers than before."""
        moved = SlotSet(ranges)
        self.held.record_moves(moved, self.selector)
        if len(self.waiting):
            self.put_back(self.waiting.take_slots(moved, self._find_slots))

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

    def _find_consumer(self, slot: int, number: int) -> BaseConsumer | None:
        """Return the consumer that gets an entry with this number. None: the entry is blocked."""
        selected = self.selector.select(slot)
        hold = self.held.find(slot)
        if hold is None or hold.consumer is selected:
            return selected
        if hold.number == number or self.held.has_incomplete_message(slot):
            return hold.consumer
        return None

    def _find_consumers(self, slots: Sequence[int], numbers: Sequence[int]) -> list[BaseConsumer | None]:
        """Return the consumers that get entries with these slots and numbers. None: the entry is blocked."""
        holds = self.held.holds
        consumers = list(self.selector.select_each(slots))
        for at, (slot, number) in enumerate(zip(slots, numbers, strict=True)):
            hold = holds.get(slot)
            if hold is not None and hold.consumer is not consumers[at]:
                consumers[at] = self._find_consumer(slot, number)
        return consumers

    def _wait(self, positions: Sequence[Position], numbers: Sequence[int]) -> None:
        slots = find_slots(numbers)
        consumers = self._find_consumers(slots, numbers)
        self.held.count_blocked(slot for slot, consumer in zip(slots, consumers, strict=True) if consumer is None)
        self.waiting.add_each(positions, consumers, slots)

    def _wait_in_memory(self, consumer: BaseConsumer, entries: Sequence[Deliverable], numbers: Sequence[int]) -> None:
        """Let entries that were read wait for the consumer's capacity."""
        positions = [one.entry.position for one in entries]
        self._numbers.set_each(positions, numbers)
        max_bytes = self._max_memory_bytes
        for one in entries:
            self._entries.add(one.entry, max_bytes)
        self.waiting.extend(consumer, positions)

    @property
    def _max_memory_bytes(self) -> int:
        """The maximum size of the waiting entries in memory."""
        limit = self.limits.max_read_bytes
        return min(limit * len(self.consumers), max(limit, self.context.cache.max_bytes // 2))

    def _discard_waiting(self, number: int, position: Position) -> None:
        """Remove an entry that is acknowledged, if it waits."""
        slot = find_slot(number)
        self.waiting.discard(self._find_consumer(slot, number), slot, position)
        self._entries.take(position)

    def _release_holds(self, numbers: Iterable[int]) -> None:
        """Entries with these numbers are acknowledged."""
        self.waiting.unblock(self.held.discard_entries(numbers), self.selector.select)

    # Chunks. Whether a slot's holder has all chunks of its messages decides who gets the slot's entries.

    def _record_chunk(self, number: int, position: Position, chunk: Chunk) -> None:
        slot = find_slot(number)
        before = self.held.has_incomplete_message(slot)
        self.held.record_chunk(slot, position, chunk)
        if self.held.has_incomplete_message(slot) != before:
            self._sort_waiting(slot)

    def _discard_chunk(self, number: int, position: Position) -> None:
        """An entry is acknowledged, and may be a chunk."""
        slot = find_slot(number)
        if self.held.has_incomplete_message(slot):
            self.held.discard_chunk(slot, position)
            if not self.held.has_incomplete_message(slot):
                self._sort_waiting(slot)

    def _sort_waiting(self, slot: int) -> None:
        """Find the consumers of a slot's waiting entries again."""
        hold = self.held.find(slot)
        if hold is not None and hold.consumer is not self.selector.select(slot):
            self.put_back(self.waiting.take_slots(SlotSet([(slot, slot)]), self._find_slots))

    def _find_slots(self, positions: Iterable[Position]) -> list[int]:
        return find_slots(self._numbers.get_each(positions))

    # Redelivery and acknowledgement.

    def _add_redelivery(self, ledger_id: int, entry_ids: list[int]) -> None:
        self.put_back([Position(ledger_id, entry_id) for entry_id in sorted(entry_ids)])

    def put_back(self, positions: Sequence[Position]) -> None:
        numbers = self._numbers.get_each(positions)  # 0: it was acknowledged in the meantime
        self._wait(list(compress(positions, numbers)), list(filter(None, numbers)))

    def record_acknowledged(self, consumer: BaseConsumer, ranges: Sequence[LedgerRange]) -> None:
        for position, number in self._find_entries(self._release_from_all(consumer, ranges)):
            self._discard_waiting(number, position)
        if self.held.has_incomplete_messages:
            for position, number in self._find_entries(ranges):
                self._discard_chunk(number, position)
        numbers, _ = self._numbers.take_each(ranges)
        self._release_holds(numbers)
        if self._counts:
            self._counts.take_each(ranges)

    def _find_entries(self, ranges: Iterable[LedgerRange]) -> Iterator[tuple[Position, int]]:
        """Yield the entries of ranges that have numbers, with these."""
        for ledger_id, first, last in ranges:
            for entry_id, number in self._numbers.find_range(ledger_id, first, last):
                yield Position(ledger_id, entry_id), number

    def record_acknowledged_up_to(self, mark_delete: Position) -> None:
        super().record_acknowledged_up_to(mark_delete)
        if found := self._numbers.find_up_to(mark_delete):
            for position, number in found:
                self._discard_waiting(number, position)
                self._discard_chunk(number, position)
            self._numbers.drop_up_to(mark_delete)
            self._release_holds(number for _, number in found)

    def record_lost(self, position: Position) -> None:
        super().record_lost(position)
        if number := self._numbers.get(position):
            self._discard_waiting(number, position)
            self._discard_chunk(number, position)
            self._numbers.set(position, 0)
            self._release_holds([number])

    def _clear_deliveries(self) -> None:
        super()._clear_deliveries()
        self._numbers.clear()
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
        if len(self.waiting) and (read := self._read_waiting()) is not None:
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
        for consumer in list(self._able):
            if self.waiting.has_queue(consumer) and self._is_able(consumer):
                del self._able[consumer]
                self._able[consumer] = None
                positions = self.waiting.first_of(consumer, self._read_size.entries_for(consumer.capacity.permits))
                entries = self._take_from_memory(positions)
                count = len(entries) or sum(1 for _ in takewhile(lambda one: one not in self._entries, positions))
                self.waiting.take(consumer, count)
                return self._create_read(positions[:count], count, entries)
        return None

    def _take_from_memory(self, positions: Iterable[Position]) -> list[LogEntry]:
        """Return the first of these entries, up to one that is not in memory."""
        taken: list[LogEntry] = []
        for position in positions:
            if (entry := self._entries.take(position)) is None:
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
            ready = group.find_before(self.waiting.first_of(consumer, 1))
            may_take = ready and not self.has_max_unacked and self._is_able(consumer)
            count = consumer.capacity.take(ready) if may_take else 0
            if count < len(group.entries):
                self._wait_in_memory(consumer, group.entries[count:], group.numbers[count:])
            if count:
                taken = group.entries[:count]
                self._record_deliveries(consumer, taken, group.numbers[:count])
                yield consumer, taken

    def _count_mixed_batches(self, entries: Sequence[Deliverable]) -> None:
        for one in entries:
            if one.entry.batch_size > 1 and has_several_keys(one.entry.stored):
                self.context.count_mixed_batch()

    def _forget_missing(self, entries: Sequence[Deliverable], positions: Iterable[Position]) -> None:
        """Forget entries that do not exist any more."""
        found = {one.entry.position for one in entries}
        for position in positions:
            number = self._numbers.get(position)
            if number and position not in found:
                slot = find_slot(number)
                if not self.waiting.has_entry(self._find_consumer(slot, number), slot, position):
                    self.record_lost(position)

    def _group_by_consumer(self, entries: Sequence[Deliverable], *, are_new: bool) -> dict[BaseConsumer, _Group]:
        """Return the entries that consumers get, also those that must wait for their capacity. The others are blocked.
        `are_new`: they were not read before."""
        groups: dict[BaseConsumer, _Group] = {}
        numbers = self._find_numbers(entries, are_new=are_new)
        for one, number, consumer in zip(
            entries, numbers, self._find_consumers(find_slots(numbers), numbers), strict=True
        ):
            if consumer is None:
                self._numbers.set(one.entry.position, number)
                self._entries.add(one.entry, self._max_memory_bytes)
                self._wait([one.entry.position], [number])
                continue
            if (group := groups.get(consumer)) is None:
                group = groups[consumer] = _Group([], [])
            group.entries.append(one)
            group.numbers.append(number)
        return groups

    def _find_numbers(self, entries: Sequence[Deliverable], *, are_new: bool) -> list[int]:
        numbers = [0] * len(entries) if are_new else self._numbers.get_each([one.entry.position for one in entries])
        slots = self.selector.slots
        return [
            number or number_without_hold(hash_entry_key(one.entry.stored) % slots)
            for one, number in zip(entries, numbers, strict=True)
        ]

    def _record_deliveries(self, consumer: BaseConsumer, entries: Sequence[Deliverable], numbers: list[int]) -> None:
        self._set_redelivery_counts(entries)
        positions = [one.entry.position for one in entries]
        if not self.policy.allow_out_of_order_delivery:
            numbers = self.held.record_deliveries(consumer, numbers)
        self._numbers.set_each(positions, numbers)
        if not self.policy.allow_out_of_order_delivery:
            for one, number in zip(entries, numbers, strict=True):
                if one.entry.chunk is not None:
                    self._record_chunk(number, one.entry.position, one.entry.chunk)

    # Statistics.

    @property
    def redelivery_entries(self) -> int:
        return len(self.waiting)

    def find_ranges(self, consumer: BaseConsumer) -> list[SlotRange]:
        return self.selector.ranges(consumer)

    def find_shortage(self) -> DeliveryReason | None:
        if (found := super().find_shortage()) is not None:
            return found
        if self.has_max_waiting:
            return delivery_reasons.LOOK_AHEAD(entries=len(self.waiting), limit=self.max_waiting)
        return None

    def find_waiting(self) -> Sequence[DeliveryReason]:
        some_have_capacity = super().find_shortage() is None
        return list(find_waiting_keys(self.waiting, self.held, some_have_capacity=some_have_capacity))

    def find_consumer_shortages(self) -> dict[BaseConsumer, DeliveryReason]:
        of_held = find_consumers_of_held_keys(self.waiting, self.held, self.selector.select)
        return of_held | super().find_consumer_shortages()


@dataclass(slots=True)
class _Group:
    """Entries for one consumer, and their numbers."""

    entries: list[Deliverable]
    numbers: list[int]

    def find_before(self, waiting: Sequence[Position]) -> Sequence[Deliverable]:
        """Return the entries before the first one that waits already."""
        if not waiting or self.entries[-1].entry.position < waiting[0]:
            return self.entries
        return [one for one in self.entries if one.entry.position < waiting[0]]


def _describe(policy: KeySharedPolicy) -> str:
    return f"the mode {policy.mode}" + (
        " and allow_out_of_order_delivery" if policy.allow_out_of_order_delivery else " and deliver in order"
    )
