"""A table of nodes in memory, for `server.py`."""

from __future__ import annotations

from collections.abc import Iterator

from magnetar_metadata.node_table import Record
from magnetar_metadata.paths import ROOT, parent_of

__all__ = ["MemoryTable"]


class MemoryTable:
    """A `WritableNodeTable` that holds all nodes in dictionaries."""

    def __init__(self) -> None:
        self._records: dict[str, Record] = {ROOT: Record()}
        self._children: dict[str, dict[str, None]] = {}

    def get(self, path: str) -> Record | None:
        return self._records.get(path)

    def child_names(self, path: str) -> Iterator[str]:
        return iter(self._children.get(path, {}))

    def put(self, path: str, record: Record) -> None:
        self._records[path] = record
        if path != ROOT:
            parent = parent_of(path)
            self._children.setdefault(parent, {})[path[path.rindex("/") + 1 :]] = None

    def delete(self, path: str) -> None:
        del self._records[path]
        siblings = self._children[parent_of(path)]
        del siblings[path[path.rindex("/") + 1 :]]
        if not siblings:
            del self._children[parent_of(path)]

    def copy(self) -> MemoryTable:
        copy = MemoryTable()
        copy._records = dict(self._records)
        copy._children = {path: dict(names) for path, names in self._children.items()}
        return copy

    def paths(self) -> list[str]:
        return list(self._records)
