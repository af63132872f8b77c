"""The records of a table of nodes, and a table of changes over another table.

The tree's rules (`tree.py`) work on any `WritableNodeTable`. An `Overlay` has changes that are not made yet, on top of
a table that it does not change. A transaction works on one, which is dropped if a change is refused. A group of
transactions that waits for its fsync is another one, between the transaction and the disk.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from magnetar_metadata.paths import ROOT, join, parent_of
from magnetar_metadata.store import Node, Stat


@dataclass(frozen=True, slots=True)
class Record:
    """A node in a table."""

    value: bytes = b""
    version: int = 0
    ephemeral_owner: int = 0
    # The number of the next sequential child. It never decreases.
    next_sequence: int = 0

    def stat(self) -> Stat:
        return Stat(self.version, self.ephemeral_owner)

    def node(self) -> Node:
        return Node(self.value, self.stat())


class NodeTable(Protocol):
    """Nodes by path. "/" always exists."""

    def get(self, path: str) -> Record | None: ...

    def child_names(self, path: str) -> Iterator[str]:
        """Return the names of the node's children, in any deterministic order."""


class WritableNodeTable(NodeTable, Protocol):
    def put(self, path: str, record: Record) -> None: ...

    def delete(self, path: str) -> None: ...


class Overlay:
    """Changes to a table, separate from the table."""

    def __init__(self, base: NodeTable) -> None:
        self._base = base
        # The new record of each changed node; None: it is deleted.
        self.changed: dict[str, Record | None] = {}
        # For each node, the names of children that are in `changed` with a record.
        self._put_below: dict[str, dict[str, None]] = {}

    def get(self, path: str) -> Record | None:
        return self.changed[path] if path in self.changed else self._base.get(path)

    def child_names(self, path: str) -> Iterator[str]:
        put = self._put_below.get(path, {})
        yield from put
        for name in self._base.child_names(path):
            if name not in put and join(path, name) not in self.changed:
                yield name

    def put(self, path: str, record: Record) -> None:
        self.changed[path] = record
        if path != ROOT:
            self._put_below.setdefault(parent_of(path), {})[path[path.rindex("/") + 1 :]] = None

    def delete(self, path: str) -> None:
        self.changed[path] = None
        self._put_below.get(parent_of(path), {}).pop(path[path.rindex("/") + 1 :], None)

    def apply_to(self, table: WritableNodeTable) -> None:
        for path, record in self.changed.items():
            if record is None:
                # It may have been created and deleted within this overlay.
                if table.get(path) is not None:
                    table.delete(path)
            else:
                table.put(path, record)
