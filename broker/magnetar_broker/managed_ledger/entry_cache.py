"""The newest entries of all topics, for those who read as they come: one for the whole broker, bounded in bytes.

An entry gets in when its append has completed and goes when newer ones need its room, the oldest of all topics first.
What is read from ledgers does not get in: who reads a backlog reads each entry once.

A topic's entries leave the cache in the order in which they came, and that is the order of the whole. So the whole is
a queue of places, and each topic has a table of its own, which a topic that nothing is cached of does not need. What a
topic drops before its turn stays in the queue as an empty place, and the queue is made anew before those are many.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from magnetar_broker.managed_ledger.log_entry import LogEntry
from magnetar_broker.managed_ledger.position import Position
from magnetar_broker.managed_ledger.read_ahead import ReadAhead
from magnetar_wire.entry_memory import ENTRY_OVERHEAD_BYTES

__all__ = ["CachedEntries", "EntryCache"]

_MANY_EMPTY: Final = 1000


class EntryCache:
    def __init__(self, max_bytes: int, read_ahead_readers: int = 16) -> None:
        self._max_bytes = max_bytes
        # Those who read what is not here.
        self.read_ahead = ReadAhead(read_ahead_readers)
        self.size_bytes = 0
        # Oldest first. A place whose topic has let the entry go is empty.
        self._queue: deque[tuple[CachedEntries, Position]] = deque()
        self._empty = 0
        # For whoever counts.
        self.hits = self.misses = 0

    def __len__(self) -> int:
        return len(self._queue) - self._empty

    def add(self, topic: CachedEntries, entries: Sequence[LogEntry]) -> None:
        table = topic.table
        if table is None:
            table = topic.table = {}
        queue = self._queue
        for entry in entries:
            position = entry.position
            table[position] = entry
            queue.append((topic, position))
            self.size_bytes += len(entry.stored) + ENTRY_OVERHEAD_BYTES
        while self.size_bytes > self._max_bytes:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        topic, position = self._queue.popleft()
        table = topic.table
        entry = None if table is None else table.pop(position, None)
        if entry is None:
            self._empty -= 1
            return
        self.size_bytes -= len(entry.stored) + ENTRY_OVERHEAD_BYTES
        if not table:
            topic.table = None

    def dropped(self, entries: int, stored_bytes: int) -> None:
        """A topic has let so many go."""
        self.size_bytes -= stored_bytes + entries * ENTRY_OVERHEAD_BYTES
        self._empty += entries
        if self._empty > _MANY_EMPTY and self._empty * 2 > len(self._queue):
            self._queue = deque(place for place in self._queue if place[0].holds(place[1]))
            self._empty = 0


class CachedEntries:
    """One topic's."""

    __slots__ = ("_cache", "table")

    def __init__(self, cache: EntryCache) -> None:
        self._cache = cache
        self.table: dict[Position, LogEntry] | None = None

    @property
    def read_ahead(self) -> ReadAhead:
        return self._cache.read_ahead

    def add(self, entries: Sequence[LogEntry]) -> None:
        self._cache.add(self, entries)

    def get(self, position: Position) -> LogEntry | None:
        found = None if self.table is None else self.table.get(position)
        if found is None:
            self._cache.misses += 1
        else:
            self._cache.hits += 1
        return found

    def holds(self, position: Position) -> bool:
        return self.table is not None and position in self.table

    def drop_up_to(self, position: Position) -> None:
        """These are in the log no more."""
        if self.table is None:
            return
        going = [place for place in self.table if place <= position]
        size = sum(len(self.table.pop(place).stored) for place in going)
        if not self.table:
            self.table = None
        if going:
            self._cache.dropped(len(going), size)

    def drop_all(self) -> None:
        table, self.table = self.table, None
        if table:
            self._cache.dropped(len(table), sum(len(entry.stored) for entry in table.values()))
