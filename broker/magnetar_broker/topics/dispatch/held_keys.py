"""Key_Shared: which consumer holds a key, by the slots of keys.

A consumer holds a slot from the first delivery of one of its entries until all that were delivered to it are
acknowledged, or the consumer leaves. An entry that the consumer negatively acknowledged still counts: it is redelivered
to the holder. So a slot has one holder at a time, and what its client has prefetched counts, too:

    A has 1:0 and 1:1 of a slot, and B joins and takes over the slot
    A acknowledges 1:0. A still holds the slot; 1:2 waits
    A negatively acknowledges 1:1, which is redelivered to A; 1:2 still waits
    A acknowledges 1:1. The slot is released, and 1:2 goes to B

The chunks of a large message have one key. A consumer can acknowledge them only when it has all of them, so while some
are missing, the holder gets all entries of the slot. Else the others would wait for the first ones to be acknowledged.

A holder that is not the selected consumer of its slot drains it. Whether a consumer holds a slot depends on its
unacknowledged entries alone, not on the consumers that join and leave in the meantime.

Each entry that was delivered or waits has a **hold tag**: its slot, and the number of the hold under which it was
delivered, packed into one integer. So the entries of a hold need only be counted, not listed. An entry whose hold has
ended belongs to none, since each hold has another number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from typing import Final

from magnetar_broker.managed_ledger.log_entry import Chunk
from magnetar_broker.position import Position
from magnetar_broker.topics.dispatch.base_consumer import BaseConsumer
from magnetar_broker.topics.dispatch.key_selectors import KeySelector, SlotSet

__all__ = ["HeldKeys", "Hold", "find_slot", "find_slots", "tag_without_hold"]

# The lowest bits of a tag are the slot plus 1, so that no tag is 0. The others are the number of the hold; 0: none.
_SLOT_BITS: Final = 33
_SLOT: Final = (1 << _SLOT_BITS) - 1


def tag_without_hold(slot: int) -> int:
    """Return the hold tag of an entry that was not delivered."""
    return slot + 1


def find_slot(tag: int) -> int:
    """Return the slot of an entry with this tag."""
    return (tag & _SLOT) - 1


def find_slots(tags: Iterable[int]) -> list[int]:
    """Return the slots of entries with these tags."""
    return [(tag & _SLOT) - 1 for tag in tags]


class Hold:
    __slots__ = ("consumer", "entries", "tag")

    def __init__(self, consumer: BaseConsumer, tag: int) -> None:
        self.consumer = consumer
        # The hold tag of its entries.
        self.tag = tag
        # How many were delivered to the consumer and not acknowledged, with those that it negatively acknowledged.
        self.entries = 0


class HeldKeys:
    __slots__ = ("_cleared", "_count", "_draining", "_incomplete", "holds")

    def __init__(self) -> None:
        # By slot. Changed only here.
        self.holds: dict[int, Hold] = {}
        # The number of holds that there ever were.
        self._count = 0
        # By held slot: the messages of which not all chunks were delivered, and the last one that was.
        self._incomplete: dict[int, dict[int, Position]] = {}
        # For statistics: the slots that are drained, with the number of blocked attempts to deliver; and how many
        # slots consumers have drained.
        self._draining: dict[int, int] = {}
        self._cleared: Counter[BaseConsumer] = Counter()

    def find(self, slot: int) -> Hold | None:
        return self.holds.get(slot)

    def record_deliveries(self, consumer: BaseConsumer, tags: Iterable[int]) -> list[int]:
        """The consumer holds the slots of entries with these tags from now on. No other consumer does. Return the
        entries' new tags."""
        recorded: list[int] = []
        holds = self.holds
        for tag in tags:
            slot = (tag & _SLOT) - 1
            hold = holds.get(slot)
            if hold is None:
                self._count += 1
                hold = holds[slot] = Hold(consumer, self._count << _SLOT_BITS | tag_without_hold(slot))
            if tag != hold.tag:  # otherwise it is redelivered, and counts already
                hold.entries += 1
            recorded.append(hold.tag)
        return recorded

    def record_chunk(self, slot: int, position: Position, chunk: Chunk) -> None:
        """A chunk was delivered to the consumer that holds the slot."""
        if not chunk.last:
            self._incomplete.setdefault(slot, {})[chunk.message] = position
        elif slot in self._incomplete:
            self._forget_message(slot, chunk.message)

    def has_incomplete_message(self, slot: int) -> bool:
        """Whether the holder has some chunks of a message, and not all of them."""
        return slot in self._incomplete

    @property
    def has_incomplete_messages(self) -> bool:
        return bool(self._incomplete)

    def discard_chunk(self, slot: int, position: Position) -> None:
        """Forget the message of a chunk that was acknowledged: its consumer discards it. Others are ignored."""
        incomplete = self._incomplete.get(slot, {})
        for message in [message for message, last in incomplete.items() if last == position]:
            self._forget_message(slot, message)

    def _forget_message(self, slot: int, message: int) -> None:
        incomplete = self._incomplete[slot]
        incomplete.pop(message, None)
        if not incomplete:
            del self._incomplete[slot]

    def discard_entries(self, tags: Iterable[int]) -> list[int]:
        """Remove entries that were acknowledged. Return the slots that this has released."""
        released: list[int] = []
        holds = self.holds
        for tag in tags:
            slot = (tag & _SLOT) - 1
            hold = holds.get(slot)
            if hold is None or hold.tag != tag:
                continue
            hold.entries -= 1
            if not hold.entries:
                del holds[slot]
                released.append(slot)
                if self._draining and self._draining.pop(slot, None) is not None:
                    self._cleared[hold.consumer] += 1
        return released

    def release_consumers(self, consumers: Collection[BaseConsumer]) -> list[int]:
        """Release the slots of consumers that leave, and return them."""
        released = [slot for slot, hold in self.holds.items() if hold.consumer in consumers]
        for slot in released:
            del self.holds[slot]
            self._draining.pop(slot, None)
            self._incomplete.pop(slot, None)
        for consumer in consumers:
            self._cleared.pop(consumer, None)
        return released

    def clear(self) -> None:
        self.holds.clear()
        self._draining.clear()
        self._incomplete.clear()

    # Statistics.

    def record_moves(self, moved: SlotSet, selector: KeySelector) -> None:
        """Record which of these slots, which have moved, are drained now."""
        slots = moved.choose(self.holds)
        for slot, selected in zip(slots, selector.select_each(slots), strict=True):
            if selected is self.holds[slot].consumer:
                self._draining.pop(slot, None)
            else:
                self._draining.setdefault(slot, 0)

    def count_blocked_attempts(self, slots: Iterable[int]) -> None:
        """Entries of these slots could not be delivered, for example because the slots are drained."""
        for slot in slots:
            if slot in self._draining:
                self._draining[slot] += 1

    def draining(self) -> Iterator[tuple[int, Hold, int]]:
        """Return the slots that are drained, with the number of attempts to deliver that this has blocked."""
        for slot, blocked_attempts in self._draining.items():
            yield slot, self.holds[slot], blocked_attempts

    def count_cleared(self, consumer: BaseConsumer) -> int:
        """Return how many slots the consumer has drained."""
        return self._cleared[consumer]
