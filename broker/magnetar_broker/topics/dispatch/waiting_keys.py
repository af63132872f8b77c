"""Key_Shared: entries that were read and not delivered, by the slots of their keys.

The entries of a slot are in a queue, in the order of the log; only the first one may be delivered. The dispatch rule
*schedules* each slot for the consumer that gets its first entry, or for none if that may not be delivered now, because
another consumer holds the slot, or none has it. A slot is scheduled again when its first entry, its holder or the
consumers have changed. So entries that can't be delivered cost nothing while others are.

Each consumer has a heap of the slots scheduled for it, by their first entries. An item of a heap is stale if its slot
was scheduled again in the meantime: it is dropped when it is the lowest, or when there are many.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Final

from magnetar_broker.managed_ledger.entry_cache import CachedEntries, EntryCache
from magnetar_broker.managed_ledger.log_entry import LogEntry
from magnetar_broker.position import Position
from magnetar_broker.topics.dispatch.base_consumer import BaseConsumer
from magnetar_wire.entry_memory import ENTRY_OVERHEAD_BYTES

__all__ = ["WaitingEntries", "WaitingKeys"]

_MAX_STALE: Final = 64


class WaitingKeys:
    __slots__ = ("_count", "_heaps", "_queues", "_scheduled")

    def __init__(self) -> None:
        # By slot, ascending. No queue is empty.
        self._queues: dict[int, list[Position]] = {}
        self._count = 0
        # The consumer for which each slot is scheduled. The others are scheduled for none.
        self._scheduled: dict[int, BaseConsumer] = {}
        self._heaps: dict[BaseConsumer, list[tuple[Position, int]]] = {}

    def __len__(self) -> int:
        """The number of entries."""
        return self._count

    def __contains__(self, slot: int) -> bool:
        return slot in self._queues

    def slots(self) -> Iterator[int]:
        return iter(self._queues)

    def count(self, slot: int) -> int:
        """Return the number of entries of a slot."""
        return len(self._queues.get(slot, ()))

    def first(self, slot: int) -> Position | None:
        queue = self._queues.get(slot)
        return queue[0] if queue else None

    def has_entry(self, slot: int, position: Position) -> bool:
        queue = self._queues.get(slot, [])
        at = bisect_left(queue, position)
        return at < len(queue) and queue[at] == position

    def add(self, slot: int, position: Position) -> bool:
        """Add an entry, once. Return whether it is the first one of its slot now: then the slot must be scheduled."""
        queue = self._queues.get(slot)
        if queue is None:
            self._queues[slot] = [position]
        elif position > queue[-1]:
            queue.append(position)
            self._count += 1
            return False
        elif queue[bisect_left(queue, position)] == position:
            return False
        else:
            insort(queue, position)
        self._count += 1
        if self._queues[slot][0] is not position:
            return False
        self._scheduled.pop(slot, None)
        return True

    def discard(self, slot: int, position: Position) -> bool:
        """Remove an entry that was acknowledged. Return whether the slot has another first one now, which must be
        scheduled."""
        queue = self._queues.get(slot)
        if queue is None:
            return False
        at = bisect_left(queue, position)
        if at == len(queue) or queue[at] != position:
            return False
        del queue[at]
        self._count -= 1
        if at:
            return False
        self._scheduled.pop(slot, None)
        if queue:
            return True
        del self._queues[slot]
        return False

    def schedule(self, slot: int, consumer: BaseConsumer | None) -> None:
        """The consumer gets the slot's first entry. None: nobody does now."""
        if consumer is None:
            self._scheduled.pop(slot, None)
            return
        self._scheduled[slot] = consumer
        heap = self._heaps.setdefault(consumer, [])
        heappush(heap, (self._queues[slot][0], slot))
        if len(heap) > 2 * len(self._scheduled) + _MAX_STALE:
            self._drop_stale(consumer)

    def _is_valid(self, consumer: BaseConsumer, position: Position, slot: int) -> bool:
        return self._scheduled.get(slot) is consumer and self._queues[slot][0] == position

    def _drop_stale(self, consumer: BaseConsumer) -> None:
        valid = {one for one in self._heaps[consumer] if self._is_valid(consumer, *one)}
        heap = self._heaps[consumer] = list(valid)
        heapify(heap)

    def find_first(self, consumer: BaseConsumer) -> tuple[Position, int] | None:
        """Return the first entry of the slots scheduled for the consumer, with its slot."""
        heap = self._heaps.get(consumer)
        while heap:
            if self._is_valid(consumer, *heap[0]):
                return heap[0]
            heappop(heap)
        self._heaps.pop(consumer, None)
        return None

    def take_first(self, slot: int) -> None:
        """Remove the first entry of a slot. If the slot has another one, it must be scheduled."""
        self._scheduled.pop(slot, None)
        queue = self._queues[slot]
        del queue[0]
        self._count -= 1
        if not queue:
            del self._queues[slot]

    def unschedule_all(self) -> None:
        """The consumers have changed: all slots must be scheduled again."""
        self._scheduled.clear()
        self._heaps.clear()

    def clear(self) -> None:
        self._queues.clear()
        self._scheduled.clear()
        self._heaps.clear()
        self._count = 0


class WaitingEntries:
    """Waiting entries in memory, up to a number of bytes, and as long as the broker's cache has memory for them. The
    others are read again when they can be delivered."""

    __slots__ = ("_added_bytes", "_cached")

    def __init__(self, cache: EntryCache) -> None:
        self._cached = CachedEntries(cache)
        # Less those that were taken, but not those that the cache has evicted.
        self._added_bytes = 0

    def __contains__(self, position: Position) -> bool:
        return self._cached.holds(position)

    def add(self, entry: LogEntry, max_bytes: int) -> None:
        """Add an entry that is not in memory yet, if all together have at most `max_bytes`."""
        size_bytes = len(entry.stored) + ENTRY_OVERHEAD_BYTES
        in_memory = self._added_bytes - self._cached.evicted_bytes
        if in_memory + size_bytes <= max_bytes and entry.position not in self:
            self._added_bytes += size_bytes
            self._cached.add([entry])

    def take(self, position: Position) -> LogEntry | None:
        """Remove an entry from memory, and return it. None: it must be read again."""
        entry = self._cached.take(position)
        if entry is not None:
            self._added_bytes -= len(entry.stored) + ENTRY_OVERHEAD_BYTES
        return entry

    def clear(self) -> None:
        self._cached.drop_all()
        self._added_bytes = self._cached.evicted_bytes
