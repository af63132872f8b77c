"""The rules of the tree: the effect of a transaction on a table of nodes, or the reason for refusing it.

They are ZooKeeper's, checked in its order: does the node exist, does it have the version, does it have children; for a
new node: does its parent exist, does it exist itself, may its parent have children. ZooKeeper does not create parents.
Here they are created with the node, before it and after the preceding changes of the transaction.

A refused transaction does not change the table. The result of a transaction lists the changed nodes and the nodes whose
children have changed, for watches.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import assert_never

from magnetar_metadata.errors import BadVersion, NoChildrenAllowed, NodeExists, NoNode, NotEmpty, Refused
from magnetar_metadata.node_table import Overlay, Record, WritableNodeTable
from magnetar_metadata.paths import ancestors_of, parent_of
from magnetar_metadata.store import ABSENT, ANY, Change, ChangeResult, Check, Delete, Put


@dataclass(slots=True)
class Applied:
    """The result of a transaction."""

    results: list[ChangeResult] = field(default_factory=list)
    # Nodes that were created, changed or deleted, including implicit parents.
    changed: list[str] = field(default_factory=list)
    # Nodes whose set of children has changed.
    children_changed: list[str] = field(default_factory=list)


def apply_changes(table: WritableNodeTable, changes: Sequence[Change], session_id: int) -> Applied:
    """Make all changes, or raise the `Refused` of the first one that can't be made."""
    overlay = Overlay(table)
    applied = Applied()
    for index, change in enumerate(changes):
        applied.results.append(_apply_one(overlay, change, index, session_id, applied))
    overlay.apply_to(table)
    return applied


def delete_nodes(table: WritableNodeTable, paths: Iterable[str]) -> Applied:
    """Delete nodes without children: the ephemeral nodes of a session that has ended."""
    applied = Applied()
    for path in paths:
        table.delete(path)
        applied.changed.append(path)
        applied.children_changed.append(parent_of(path))
    return applied


def _apply_one(table: Overlay, change: Change, index: int, session_id: int, applied: Applied) -> ChangeResult:
    match change:
        case Put(path, value, expected):
            if change.sequential or expected == ABSENT or (expected == ANY and table.get(path) is None):
                return _create(table, change, index, session_id, applied)
            record = _expect(table, path, expected, index)
            if change.ephemeral:
                return _replace(table, change, index, session_id, applied)
            table.put(path, replace(record, value=value, version=record.version + 1))
            applied.changed.append(path)
            return ChangeResult(path, record.version + 1)
        case Delete(path, expected):
            _expect(table, path, expected, index)
            _delete(table, path, index, applied)
            return ChangeResult(path, ABSENT)
        case Check(path, expected):
            _expect(table, path, expected, index)
            return ChangeResult(path, expected)
        case _:
            assert_never(change)


def _expect(table: Overlay, path: str, expected: int, index: int) -> Record:
    record = table.get(path)
    if record is None:
        raise NoNode(f"{path!r} does not exist; version {expected} was expected", path, index)
    if expected not in (ANY, record.version):
        raise BadVersion(f"{path!r} has version {record.version}; version {expected} was expected", path, index)
    return record


def _delete(table: Overlay, path: str, index: int, applied: Applied) -> None:
    if any(True for _ in table.child_names(path)):
        raise NotEmpty(f"{path!r} has children, so it can't be deleted", path, index)
    table.delete(path)
    applied.changed.append(path)
    applied.children_changed.append(parent_of(path))


def _replace(table: Overlay, put: Put, index: int, session_id: int, applied: Applied) -> ChangeResult:
    _delete(table, put.path, index, applied)
    version = 1 if put.expected == 0 else 0
    _create_node(table, put.path, Record(put.value, version, ephemeral_owner=session_id), index, applied)
    return ChangeResult(put.path, version)


def _create(table: Overlay, put: Put, index: int, session_id: int, applied: Applied) -> ChangeResult:
    for above in ancestors_of(put.path):
        if table.get(above) is None:
            _create_node(table, above, Record(), index, applied)
    path = _next_sequential(table, put.path) if put.sequential else put.path
    record = Record(put.value, ephemeral_owner=session_id if put.ephemeral else 0)
    try:
        _create_node(table, path, record, index, applied)
    except Refused as refused:
        # The path of the caller's change.
        refused.path = put.path
        raise
    return ChangeResult(path, 0)


def _create_node(table: Overlay, path: str, record: Record, index: int, applied: Applied) -> None:
    if table.get(path) is not None:
        raise NodeExists(f"{path!r} already exists", path, index)
    parent_path = parent_of(path)
    parent = table.get(parent_path)
    assert parent is not None, f"{path!r} is created before its parent"
    if parent.ephemeral_owner:
        raise NoChildrenAllowed(f"{parent_path!r} is ephemeral, so {path!r} can't be created below it", path, index)
    table.put(path, record)
    applied.changed.append(path)
    applied.children_changed.append(parent_path)


def _next_sequential(table: Overlay, beginning: str) -> str:
    """Return the path with the parent's next number, and increment that number."""
    parent_path = parent_of(beginning)
    parent = table.get(parent_path)
    assert parent is not None, f"{beginning!r} is numbered before its parent exists"
    table.put(parent_path, replace(parent, next_sequence=parent.next_sequence + 1))
    return f"{beginning}{parent.next_sequence:010d}"
