"""A cache in memory whose entries have at most a number of bytes together. Those that were used last stay."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

__all__ = ["BoundedCache"]

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class BoundedCache(Generic[K, V]):
    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        # Each with its size. The one that was used last is at the end.
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self.used_bytes = 0

    def __contains__(self, key: K) -> bool:
        return key in self._entries

    def get(self, key: K) -> V | None:
        found = self._entries.get(key)
        if found is None:
            return None
        self._entries.move_to_end(key)
        return found[0]

    def put(self, key: K, value: V, size_bytes: int) -> None:
        """Add or replace an entry, with the size that it counts with. One above the maximum is not cached."""
        _, replaced_bytes = self._entries.pop(key, (None, 0))
        self.used_bytes -= replaced_bytes
        if size_bytes > self._max_bytes:
            return
        self._entries[key] = value, size_bytes
        self.used_bytes += size_bytes
        while self.used_bytes > self._max_bytes:
            _, (_, dropped_bytes) = self._entries.popitem(last=False)
            self.used_bytes -= dropped_bytes
