"""What a table of nodes holds, and a table laid over another one.

The tree's rules (`tree.py`) work on any `NodeTable`. An `Overlay` holds changes that are not made yet, over a table
that it leaves alone: a transaction works on one and is dropped if a change is refused; a group of transactions that
waits for its fsync is another, between the transaction and the disk.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from magnetar_metadata.core.paths import ROOT, join, parent_of
from magnetar_metadata.store import Node, Stat


@dataclass(frozen=True, slots=True)
class Record:
    """A node as a table keeps it."""

    value: bytes = b""
    version: int = 0
    ephemeral_owner: int = 0
    # The number of the next sequential child: above all that were given out, so it never goes down.
    next_sequence: int = 0

    def stat(self) -> Stat:
        return Stat(self.version, self.ephemeral_owner)

    def node(self) -> Node:
        return Node(self.value, self.stat())


class NodeTable(Protocol):
    """Nodes by path. "/" is always there."""

    def get(self, path: str) -> Record | None: ...

    def child_names(self, path: str) -> Iterator[str]:
        """In any order that is the same at every run."""

    def put(self, path: str, record: Record) -> None: ...

    def delete(self, path: str) -> None: ...


class Overlay:
    """What changes in a table, apart from the table."""

    def __init__(self, base: NodeTable) -> None:
        self._base = base
        # A node's new record, or None where it goes.
        self.changed: dict[str, Record | None] = {}
        # Names below a node that are in `changed` with a record.
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

    def apply_to(self, table: NodeTable) -> None:
        for path, record in self.changed.items():
            if record is None:
                # It may have come and gone within this overlay.
                if table.get(path) is not None:
                    table.delete(path)
            else:
                table.put(path, record)
