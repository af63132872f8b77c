"""Key_Shared: which consumer gets an entry, so that the entries of a key stay in order.

An entry's **slot** follows from the key of its first message. A selector assigns each slot to one consumer
(key_selectors.py). When consumers join or leave, slots move. Two rules guarantee the order of a key:

- A slot is delivered to its new consumer only when the old one has acknowledged all that it got of it
  (held_keys.py). What the old one negatively acknowledged is redelivered to it, while it is connected.
- An entry waits behind earlier ones that wait for the same consumer's capacity, or for its slot (waiting_keys.py).

So a slot that has not moved waits for its consumer's capacity only, and one that waits holds up no other:

    A has unacknowledged 1:0 of slot 7, and B joins, and takes over slots 0 … 32,767
    1:1 of slot 7 is blocked. 1:2 of slot 9, of which A has nothing, goes to B, and 1:3 of slot 40,000 to A
    A acknowledges 1:0. Nobody holds slot 7 any more, and 1:1 goes to B

With `allow_out_of_order_delivery` nothing is held: each entry goes to the present consumer of its slot.

How much a consumer gets, and when, is decided in key_shared.py.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import compress

from magnetar_broker.managed_ledger.log_entry import Chunk
from magnetar_broker.position import LedgerRange, Position
from magnetar_broker.topics.dispatch.base_consumer import BaseConsumer
from magnetar_broker.topics.dispatch.delivery_capacity import Deliverable
from magnetar_broker.topics.dispatch.entry_counts import EntryCounts
from magnetar_broker.topics.dispatch.held_keys import HeldKeys, find_slot, find_slots, tag_without_hold
from magnetar_broker.topics.dispatch.key_selectors import KeySelector, SlotSet
from magnetar_broker.topics.dispatch.key_shared_policy import SlotRange
from magnetar_broker.topics.dispatch.waiting_keys import WaitingKeys
from magnetar_wire.entry_keys import hash_entry_key

__all__ = ["KeyOrder"]


class KeyOrder:
    def __init__(self, selector: KeySelector, *, allow_out_of_order_delivery: bool) -> None:
        self.selector = selector
        self.held = HeldKeys()
        self.waiting = WaitingKeys()
        self._allow_out_of_order_delivery = allow_out_of_order_delivery
        # The hold tags (held_keys.py) of all entries that were delivered or wait, and are not acknowledged.
        self._tags = EntryCounts()

    # Consumers.

    def join(self, consumer: BaseConsumer) -> None:
        """Assign slots to a new consumer. Raises `BrokerError` if it can't have any; then nothing has changed."""
        self.selector.join(consumer)
        self._move_slots(self.selector.ranges(consumer))

    def leave(self, consumers: Collection[BaseConsumer]) -> None:
        """Release and reassign the slots of consumers that leave together."""
        if len(consumers) == 1:
            moved = self.selector.ranges(next(iter(consumers)))
        else:  # to find theirs would take longer than to look at the entries of all
            moved = [(0, self.selector.slots - 1)]
        self.selector.leave(consumers)
        released = self.held.release_consumers(consumers)
        queued = self.waiting.take_queues(consumers)
        self._move_slots(moved)
        self.waiting.unblock(released, self.selector)
        self.put_back(queued)

    def _move_slots(self, ranges: Iterable[SlotRange]) -> None:
        """The slots in these ranges may have other consumers than before."""
        moved = SlotSet(ranges)
        self.held.record_moves(moved, self.selector)
        self._sort_again(moved)

    def _sort_again(self, slots: SlotSet) -> None:
        """Find the consumers of the entries again that wait and have these slots."""
        if len(self.waiting):
            self.put_back(self.waiting.take_slots(slots, lambda queue: find_slots(self._tags.get_each(queue))))

    # Who gets an entry.

    def find_tags(self, entries: Sequence[Deliverable], *, are_new: bool) -> list[int]:
        """Return the hold tags of entries that were read. `are_new`: for the first time."""
        tags = [0] * len(entries) if are_new else self._tags.get_each([one.entry.position for one in entries])
        slots = self.selector.slots
        return [
            tag or tag_without_hold(hash_entry_key(one.entry.stored) % slots)
            for one, tag in zip(entries, tags, strict=True)
        ]

    def find_consumers(self, tags: Sequence[int]) -> list[BaseConsumer | None]:
        """Return the consumers that get entries with these tags. None: the entry is blocked."""
        return self._find_consumers(find_slots(tags), tags)

    def _find_consumers(self, slots: Sequence[int], tags: Sequence[int]) -> list[BaseConsumer | None]:
        holds = self.held.holds
        consumers = list(self.selector.select_each(slots))
        for at, slot in enumerate(slots):
            hold = holds.get(slot)
            if hold is not None and hold.consumer is not consumers[at]:
                consumers[at] = self._find_consumer(slot, tags[at])
        return consumers

    def _find_consumer(self, slot: int, tag: int) -> BaseConsumer | None:
        selected = self.selector.select(slot)
        hold = self.held.find(slot)
        if hold is None or hold.consumer is selected:
            return selected
        if hold.tag == tag or self.held.has_incomplete_message(slot):
            return hold.consumer
        return None

    # Delivering and waiting.

    def record_deliveries(self, consumer: BaseConsumer, entries: Sequence[Deliverable], tags: Sequence[int]) -> None:
        """Entries with these tags are delivered to the consumer that gets them."""
        if not self._allow_out_of_order_delivery:
            tags = self.held.record_deliveries(consumer, tags)
        self._tags.set_each([one.entry.position for one in entries], tags)
        if not self._allow_out_of_order_delivery:
            for one, tag in zip(entries, tags, strict=True):
                if one.entry.chunk is not None:
                    self._record_chunk(tag, one.entry.position, one.entry.chunk)

    def wait(
        self, positions: Sequence[Position], tags: Sequence[int], consumers: Sequence[BaseConsumer | None]
    ) -> None:
        """Let entries with these tags wait for the capacity of their consumers. None: the entry is blocked."""
        self._tags.set_each(positions, tags)
        self._wait(positions, find_slots(tags), consumers)

    def put_back(self, positions: Sequence[Position]) -> None:
        """Let entries wait that have tags. Others were acknowledged in the meantime."""
        tags = self._tags.get_each(positions)
        positions, tags = list(compress(positions, tags)), list(filter(None, tags))
        slots = find_slots(tags)
        self._wait(positions, slots, self._find_consumers(slots, tags))

    def _wait(
        self, positions: Sequence[Position], slots: Sequence[int], consumers: Sequence[BaseConsumer | None]
    ) -> None:
        self.waiting.add_each(positions, consumers, slots)
        if None in consumers:
            self.held.count_blocked_attempts(compress(slots, [consumer is None for consumer in consumers]))

    def is_waiting(self, position: Position) -> bool:
        tag = self._tags.get(position)
        slot = find_slot(tag)
        return self.waiting.has_entry(self._find_consumer(slot, tag), slot, position)

    # Acknowledgement.

    def find_up_to(self, mark_delete: Position) -> Sequence[LedgerRange]:
        """Return ranges with all entries up to this one that have tags."""
        return self._tags.find_ranges_up_to(mark_delete)

    def discard_waiting(self, ranges: Iterable[LedgerRange]) -> Iterator[Position]:
        """Remove acknowledged entries that wait. Yield all in these ranges that may have waited."""
        for position, tag in self._find_entries(ranges):
            slot = find_slot(tag)
            self.waiting.discard(self._find_consumer(slot, tag), slot, position)
            yield position

    def discard(self, ranges: Sequence[LedgerRange]) -> None:
        """Remove acknowledged entries, which do not wait. This may release slots."""
        if self.held.has_incomplete_messages:
            for position, tag in self._find_entries(ranges):
                self._discard_chunk(tag, position)
        tags, _ = self._tags.take_each(ranges)
        self.waiting.unblock(self.held.discard_entries(tags), self.selector)

    def _find_entries(self, ranges: Iterable[LedgerRange]) -> Iterator[tuple[Position, int]]:
        """Yield the entries of ranges that have tags, with these."""
        for ledger_id, first, last in ranges:
            for entry_id, tag in self._tags.find_range(ledger_id, first, last):
                yield Position(ledger_id, entry_id), tag

    def clear(self) -> None:
        """Forget all entries."""
        self._tags.clear()
        self.held.clear()
        self.waiting.clear()

    # Chunks. Whether a slot's holder has all chunks of its messages decides who gets the slot's entries.

    def _record_chunk(self, tag: int, position: Position, chunk: Chunk) -> None:
        slot = find_slot(tag)
        before = self.held.has_incomplete_message(slot)
        self.held.record_chunk(slot, position, chunk)
        if self.held.has_incomplete_message(slot) != before:
            self._sort_slot_again(slot)

    def _discard_chunk(self, tag: int, position: Position) -> None:
        """An entry is acknowledged, and may be a chunk."""
        slot = find_slot(tag)
        if self.held.has_incomplete_message(slot):
            self.held.discard_chunk(slot, position)
            if not self.held.has_incomplete_message(slot):
                self._sort_slot_again(slot)

    def _sort_slot_again(self, slot: int) -> None:
        hold = self.held.find(slot)
        if hold is not None and hold.consumer is not self.selector.select(slot):
            self._sort_again(SlotSet([(slot, slot)]))
