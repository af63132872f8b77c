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
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

from magnetar_broker.managed_ledger.log_entry import Chunk
from magnetar_broker.position import Position
from magnetar_broker.topics.dispatch.base_consumer import BaseConsumer

__all__ = ["HeldKeys", "Hold"]


class Hold(NamedTuple):
    consumer: BaseConsumer
    # Delivered to the consumer and not acknowledged, those that it negatively acknowledged included. Never empty.
    positions: set[Position]


class HeldKeys:
    __slots__ = ("_cleared", "_draining", "_holds", "_incomplete")

    def __init__(self) -> None:
        self._holds: dict[int, Hold] = {}
        # By held slot: the messages of which not all chunks were delivered, and the last one that was.
        self._incomplete: dict[int, dict[int, Position]] = {}
        # For statistics: the slots that are drained, with the number of deliveries that waited for it; and how many
        # slots consumers have drained.
        self._draining: dict[int, int] = {}
        self._cleared: Counter[BaseConsumer] = Counter()

    def find(self, slot: int) -> Hold | None:
        return self._holds.get(slot)

    def record_delivery(self, slot: int, position: Position, consumer: BaseConsumer) -> None:
        """The consumer holds the slot from now on. No other consumer does."""
        hold = self._holds.get(slot)
        if hold is None:
            self._holds[slot] = Hold(consumer, {position})
        else:
            hold.positions.add(position)

    def record_chunk(self, slot: int, position: Position, chunk: Chunk) -> None:
        """A chunk was delivered to the consumer that holds the slot."""
        incomplete = self._incomplete.setdefault(slot, {})
        if not chunk.last:
            incomplete[chunk.message] = position
            return
        incomplete.pop(chunk.message, None)
        if not incomplete:
            del self._incomplete[slot]

    def has_incomplete_message(self, slot: int) -> bool:
        """Whether the holder has some chunks of a message, and not all of them."""
        return slot in self._incomplete

    def _discard_chunk(self, slot: int, position: Position) -> None:
        """Forget the message of a chunk that was acknowledged: its consumer discards it."""
        incomplete = self._incomplete[slot]
        for message in [message for message, last in incomplete.items() if last == position]:
            del incomplete[message]
        if not incomplete:
            del self._incomplete[slot]

    def discard_entry(self, slot: int, position: Position) -> bool:
        """Remove an entry that was acknowledged. Return whether this has released the slot."""
        hold = self._holds.get(slot)
        if hold is None:
            return False
        hold.positions.discard(position)
        if slot in self._incomplete:
            self._discard_chunk(slot, position)
        if hold.positions:
            return False
        del self._holds[slot]
        self._incomplete.pop(slot, None)
        if self._draining.pop(slot, None) is not None:
            self._cleared[hold.consumer] += 1
        return True

    def release_consumer(self, consumer: BaseConsumer) -> None:
        """Release the slots of a consumer that leaves."""
        for slot in [slot for slot, hold in self._holds.items() if hold.consumer is consumer]:
            del self._holds[slot]
            self._draining.pop(slot, None)
            self._incomplete.pop(slot, None)
        self._cleared.pop(consumer, None)

    def clear(self) -> None:
        self._holds.clear()
        self._draining.clear()
        self._incomplete.clear()

    # Statistics.

    def find_draining(self, select: Callable[[int], BaseConsumer | None]) -> None:
        """Record which slots are drained, because the consumers have changed. `select` returns a slot's consumer."""
        self._draining = {
            slot: self._draining.get(slot, 0) for slot, hold in self._holds.items() if select(slot) is not hold.consumer
        }

    def count_blocked(self, slot: int) -> None:
        """A delivery waits until the slot is drained."""
        if slot in self._draining:
            self._draining[slot] += 1

    def draining(self) -> Iterator[tuple[int, Hold, int]]:
        """Return the slots that are drained, with the number of deliveries that waited for it."""
        for slot, blocked in self._draining.items():
            yield slot, self._holds[slot], blocked

    def count_cleared(self, consumer: BaseConsumer) -> int:
        """Return how many slots the consumer has drained."""
        return self._cleared[consumer]
