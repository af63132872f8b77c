"""Entries that will probably be delivered soon: one cache per broker, bounded in bytes.

An entry is added when it is persisted, for consumers that read the newest entries as they arrive. Entries that are read
from ledgers are not added, since a consumer of a backlog reads each entry once, except those that a Key_Shared
subscription has read and can't deliver yet.

Entries are evicted when others need their memory, in the order in which they were added. So the cache is one queue of
positions. Each topic, and each Key_Shared subscription, has a table of its cached entries, unless it has none. If it
drops an entry before its turn, the entry's position in the queue becomes stale, and the queue is rebuilt when many are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from magnetar_broker.managed_ledger.log_entry import LogEntry
from magnetar_broker.managed_ledger.read_ahead import ReadAhead
from magnetar_broker.position import Position
from magnetar_wire.entry_memory import ENTRY_OVERHEAD_BYTES

__all__ = ["CachedEntries", "EntryCache"]

_MANY_STALE: Final = 1000


class EntryCache:
    def __init__(self, max_bytes: int, read_ahead_readers: int = 16) -> None:
        self.max_bytes = max_bytes
        # For reads of entries that are not cached.
        self.read_ahead = ReadAhead(read_ahead_readers)
        self.size_bytes = 0
        # Oldest first. A position is stale if its table has dropped the entry.
        self._queue: deque[tuple[CachedEntries, Position]] = deque()
        self._stale = 0
        # For metrics.
        self.hits = self.misses = 0

    def __len__(self) -> int:
        return len(self._queue) - self._stale

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
        while self.size_bytes > self.max_bytes:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        topic, position = self._queue.popleft()
        table = topic.table
        entry = None if table is None else table.pop(position, None)
        if entry is None:
            self._stale -= 1
            return
        size_bytes = len(entry.stored) + ENTRY_OVERHEAD_BYTES
        self.size_bytes -= size_bytes
        topic.evicted_bytes += size_bytes
        if not table:
            topic.table = None

    def note_dropped(self, entries: int, stored_bytes: int) -> None:
        """Note that a topic or subscription has dropped entries of these sizes."""
        self.size_bytes -= stored_bytes + entries * ENTRY_OVERHEAD_BYTES
        self._stale += entries
        if self._stale > _MANY_STALE and self._stale * 2 > len(self._queue):
            # An entry that was dropped and added again is in the queue twice.
            held = dict.fromkeys(one for one in self._queue if one[0].holds(one[1]))
            self._queue = deque(held)
            self._stale = 0


class CachedEntries:
    """The cached entries of one topic, or those that wait in one Key_Shared subscription."""

    __slots__ = ("_cache", "evicted_bytes", "table")

    def __init__(self, cache: EntryCache) -> None:
        self._cache = cache
        self.table: dict[Position, LogEntry] | None = None
        # How much the cache has evicted of it.
        self.evicted_bytes = 0

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

    def take(self, position: Position) -> LogEntry | None:
        """Remove an entry, and return it."""
        found = None if self.table is None else self.table.pop(position, None)
        if found is not None:
            if not self.table:
                self.table = None
            self._cache.note_dropped(1, len(found.stored))
        return found

    def drop_up_to(self, position: Position) -> None:
        """Drop the entries up to the position: they were deleted from the log."""
        if self.table is None:
            return
        deleted = [one for one in self.table if one <= position]
        size = sum(len(self.table.pop(one).stored) for one in deleted)
        if not self.table:
            self.table = None
        if deleted:
            self._cache.note_dropped(len(deleted), size)

    def drop_all(self) -> None:
        table, self.table = self.table, None
        if table:
            self._cache.note_dropped(len(table), sum(len(entry.stored) for entry in table.values()))
