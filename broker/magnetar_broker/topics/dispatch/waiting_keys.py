"""Key_Shared: entries that were read and not delivered.

Each consumer has a queue of the entries that it gets next, in the order of the log. They wait for its capacity. A
**blocked** entry is in no queue, because no consumer may get it now: another one holds its slot, or none has the slot.
When the slot is released, its blocked entries join the queue of its consumer. So they cost nothing while others are
delivered.

`KeyOrder` decides which entries are blocked. When slots move, it takes their entries out and adds them again.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import compress
from typing import Final

from magnetar_broker.managed_ledger.entry_cache import CachedEntries, EntryCache
from magnetar_broker.managed_ledger.log_entry import LogEntry
from magnetar_broker.position import Position
from magnetar_broker.topics.dispatch.base_consumer import BaseConsumer
from magnetar_broker.topics.dispatch.key_selectors import KeySelector, SlotSet
from magnetar_wire.entry_memory import ENTRY_OVERHEAD_BYTES

__all__ = ["WaitingEntries", "WaitingKeys"]

# Positions that are inserted one by one: sorting a queue of 20,000 takes as long as inserting about a hundred.
_FEW: Final = 64


class WaitingKeys:
    __slots__ = ("_blocked", "_count", "_queues")

    def __init__(self) -> None:
        # By consumer, and by slot; each ascends, and none is empty.
        self._queues: dict[BaseConsumer, list[Position]] = {}
        self._blocked: dict[int, list[Position]] = {}
        self._count = 0

    def __len__(self) -> int:
        """The number of entries."""
        return self._count

    def has_queue(self, consumer: BaseConsumer) -> bool:
        """Return whether entries wait for the consumer's capacity."""
        return consumer in self._queues

    def queues(self) -> Iterator[tuple[BaseConsumer, int]]:
        """Return the consumers for whose capacity entries wait, with the number of entries."""
        return ((consumer, len(queue)) for consumer, queue in self._queues.items())

    def blocked(self) -> Iterator[tuple[int, Sequence[Position]]]:
        """Return the blocked slots, with their entries."""
        return iter(self._blocked.items())

    def has_entry(self, consumer: BaseConsumer | None, slot: int, position: Position) -> bool:
        """Return whether an entry waits. `consumer`: who gets it; None: it is blocked."""
        found = self._find(consumer, slot)
        at = bisect_left(found, position)
        return at < len(found) and found[at] == position

    def add_each(
        self, positions: Sequence[Position], consumers: Iterable[BaseConsumer | None], slots: Iterable[int]
    ) -> None:
        """Add entries that do not wait yet, with the consumer that gets each (None: it is blocked), and its slot."""
        queues, blocked = self._queues, self._blocked
        # Where entries come before others that wait already, and these entries.
        late: dict[BaseConsumer | int, tuple[list[Position], list[Position]]] = {}
        for position, consumer, slot in zip(positions, consumers, slots, strict=True):
            waiting = blocked.setdefault(slot, []) if consumer is None else queues.setdefault(consumer, [])
            if waiting and waiting[-1] > position:
                late.setdefault(slot if consumer is None else consumer, (waiting, []))[1].append(position)
            else:
                waiting.append(position)
        for waiting, added in late.values():
            _insert_each(waiting, added)
        self._count += len(positions)

    def discard(self, consumer: BaseConsumer | None, slot: int, position: Position) -> None:
        """Remove an entry, if it waits. `consumer`: who would get it; None: it is blocked."""
        if self.has_entry(consumer, slot, position):
            waiting = self._find(consumer, slot)
            del waiting[bisect_left(waiting, position)]
            self._count -= 1
            self._drop_empty(consumer, slot, waiting)

    def _find(self, consumer: BaseConsumer | None, slot: int) -> list[Position]:
        return (self._blocked.get(slot) if consumer is None else self._queues.get(consumer)) or []

    def _drop_empty(self, consumer: BaseConsumer | None, slot: int, waiting: list[Position]) -> None:
        if waiting:
            return
        if consumer is None:
            del self._blocked[slot]
        else:
            del self._queues[consumer]

    def unblock(self, slots: Iterable[int], selector: KeySelector) -> None:
        """Nobody holds these slots any more: let their entries wait for the slots' consumers, if they have one."""
        released = [slot for slot in slots if slot in self._blocked]
        if not released:
            return
        unblocked: dict[BaseConsumer, list[Position]] = {}
        for slot, consumer in zip(released, selector.select_each(released), strict=True):
            if consumer is not None:
                unblocked.setdefault(consumer, []).extend(self._blocked.pop(slot))
        for consumer, positions in unblocked.items():
            _insert_each(self._queues.setdefault(consumer, []), positions)

    def take_slots(
        self, slots: SlotSet, find_slots: Callable[[Iterable[Position]], Iterable[int]]
    ) -> Sequence[Position]:
        """Remove the entries of these slots, and return them. `find_slots` returns the slots of entries."""
        taken = [position for slot in slots.choose(self._blocked) for position in self._blocked.pop(slot)]
        for consumer, queue in list(self._queues.items()):
            are_taken = slots.find_each(find_slots(queue))
            if any(are_taken):
                taken += compress(queue, are_taken)
                queue[:] = [position for position, is_taken in zip(queue, are_taken, strict=True) if not is_taken]
                self._drop_empty(consumer, -1, queue)
        self._count -= len(taken)
        return taken

    def take_queues(self, consumers: Iterable[BaseConsumer]) -> Sequence[Position]:
        """Remove the entries that wait for the capacity of these consumers, and return them."""
        taken = [position for consumer in consumers for position in self._queues.pop(consumer, ())]
        self._count -= len(taken)
        return taken

    def first_of(self, consumer: BaseConsumer, count: int) -> list[Position]:
        """Return the first entries of the consumer's queue, at most `count`."""
        return self._queues[consumer][:count] if consumer in self._queues else []

    def take(self, consumer: BaseConsumer, count: int) -> None:
        """Remove the first entries of the consumer's queue, which has as many."""
        queue = self._queues[consumer]
        del queue[:count]
        self._count -= count
        if not queue:
            del self._queues[consumer]

    def clear(self) -> None:
        self._queues.clear()
        self._blocked.clear()
        self._count = 0


def _insert_each(waiting: list[Position], added: Sequence[Position]) -> None:
    """Insert positions into an ascending list: there may be thousands of either."""
    if len(added) <= _FEW:
        for position in added:
            insort(waiting, position)
    else:
        waiting += added
        waiting.sort()


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
