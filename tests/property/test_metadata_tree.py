"""The tree's rules against a dumb model: one dictionary, copied for each transaction, searched from end to end."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar_metadata.errors import (
    BadVersion,
    InvalidChange,
    NoChildrenAllowed,
    NodeExists,
    NoNode,
    NotEmpty,
    Refused,
)
from magnetar_metadata.node_table import NodeTable, Overlay
from magnetar_metadata.store import ABSENT, ANY, Change, ChangeResult, Check, Delete, Put
from magnetar_metadata.transaction_check import check_transaction
from magnetar_metadata.tree import apply_changes, delete_nodes
from magnetar_testing.metadata.memory_table import MemoryTable
from tests.examples import examples

# Few names, so that changes meet.
_paths = st.lists(st.sampled_from("ab"), min_size=1, max_size=3).map(lambda names: "/" + "/".join(names))
_expected = st.sampled_from([ABSENT, ANY, 0, 1, 2])
_puts = st.builds(Put, _paths, st.binary(max_size=2), _expected)
_makes = st.builds(Put, _paths, st.binary(max_size=2), st.just(ABSENT), st.booleans(), st.booleans())
_replaces = st.builds(Put, _paths, st.binary(max_size=2), st.sampled_from([0, 1]), st.just(True))
_deletes = st.builds(Delete, _paths, st.sampled_from([ANY, ANY, 0, 1]))
_checks = st.builds(Check, _paths, st.sampled_from([0, 1]))
_transactions = st.lists(st.one_of(_puts, _makes, _replaces, _deletes, _checks), min_size=1, max_size=4)
_ends = st.integers(1, 3)


class Model:
    """A plain model of the tree's contract."""

    def __init__(self) -> None:
        # Path -> value, version, owner, next sequence number.
        self.nodes: dict[str, list[Any]] = {"/": [b"", 0, 0, 0]}

    def parent(self, path: str) -> str:
        return path.rpartition("/")[0] or "/"

    def children(self, path: str) -> list[str]:
        return [other for other in self.nodes if other != "/" and self.parent(other) == path]

    def apply(self, changes: list[Change], owner: int) -> list[ChangeResult]:
        before = {path: list(node) for path, node in self.nodes.items()}
        try:
            return [self._one(change, index, owner) for index, change in enumerate(changes)]
        except Refused:
            self.nodes = before
            raise

    def _one(self, change: Change, index: int, owner: int) -> ChangeResult:
        path, node = change.path, self.nodes.get(change.path)
        if isinstance(change, Put) and (
            change.sequential or change.expected == ABSENT or (change.expected == ANY and node is None)
        ):
            return self._make(change, index, owner)
        if node is None:
            raise NoNode("", path, index)
        if change.expected not in (ANY, node[1]):
            raise BadVersion("", path, index)
        if isinstance(change, Put) and change.ephemeral:
            if self.children(path):
                raise NotEmpty("", path, index)
            self.nodes[path] = [change.value, 0 if node[1] else 1, owner, 0]
            return ChangeResult(path, self.nodes[path][1])
        if isinstance(change, Put):
            node[0], node[1] = change.value, node[1] + 1
            return ChangeResult(path, node[1])
        if isinstance(change, Check):
            return ChangeResult(path, node[1])
        if self.children(path):
            raise NotEmpty("", path, index)
        del self.nodes[path]
        return ChangeResult(path, ABSENT)

    def _make(self, put: Put, index: int, owner: int) -> ChangeResult:
        names = put.path[1:].split("/")
        for depth in range(1, len(names)):
            self._make_one("/" + "/".join(names[:depth]), b"", 0, index, parent=True)
        path = put.path
        if put.sequential:
            above = self.nodes[self.parent(path)]
            path += f"{above[3]:010d}"
            above[3] += 1
        try:
            self._make_one(path, put.value, owner if put.ephemeral else 0, index)
        except Refused as refused:
            refused.path = put.path
            raise
        return ChangeResult(path, 0)

    def _make_one(self, path: str, value: bytes, owner: int, index: int, parent: bool = False) -> None:
        if path in self.nodes:
            if parent:
                return
            raise NodeExists("", path, index)
        if self.nodes[self.parent(path)][2]:
            raise NoChildrenAllowed("", path, index)
        self.nodes[path] = [value, 0, owner, 0]

    def end(self, owner: int) -> None:
        self.nodes = {path: node for path, node in self.nodes.items() if node[2] != owner}


def _contents(table: NodeTable, path: str = "/") -> dict[str, list[Any]]:
    record = table.get(path)
    assert record is not None
    found = {path: [record.value, record.version, record.ephemeral_owner, record.next_sequence]}
    for name in table.child_names(path):
        found |= _contents(table, f"/{name}" if path == "/" else f"{path}/{name}")
    return found


@examples(300)
@given(st.lists(st.tuples(st.integers(1, 3), st.one_of(_transactions, _ends)), max_size=12))
def test_metadata_tree_matches_the_model(steps: list[tuple[int, list[Change] | int]]) -> None:
    """Also laid over itself: what an overlay shows is what the table would show with the changes made."""
    model, table = Model(), MemoryTable()
    layered = Overlay(MemoryTable())
    for owner, step in steps:
        before = {path: list(node) for path, node in model.nodes.items()}
        if isinstance(step, int):
            owned = [path for path, node in model.nodes.items() if node[2] == step]
            model.end(step)
            changed = delete_nodes(table, owned).changed
            delete_nodes(layered, owned)
        else:
            try:
                check_transaction(step, ())
            except InvalidChange:
                continue
            made = _outcome(model, step, owner)
            if isinstance(made, Refused):
                for refusing in (table, layered):
                    with pytest.raises(type(made)) as raised:
                        apply_changes(refusing, step, owner)
                    assert type(raised.value) is type(made)
                    assert (raised.value.index, raised.value.path) == (made.index, made.path)
                changed = []
            else:
                applied = apply_changes(table, step, owner)
                assert applied.results == made == apply_changes(layered, step, owner).results
                changed = applied.changed
                _check_children_changed(before, model.nodes, applied.children_changed, model)
        assert _contents(table) == model.nodes == _contents(layered)
        differing = {path for path in before.keys() | model.nodes.keys() if before.get(path) != model.nodes.get(path)}
        # A parent whose numbers went on is no change that anybody could see.
        unseen = {path for path in differing if before.get(path, [0])[:3] == model.nodes.get(path, [1])[:3]}
        assert differing - unseen <= set(changed)


def _outcome(model: Model, changes: list[Change], owner: int) -> list[ChangeResult] | Refused:
    try:
        return model.apply(changes, owner)
    except Refused as refused:
        return refused


def _check_children_changed(
    before: dict[str, list[Any]], after: dict[str, list[Any]], notified: list[str], model: Model
) -> None:
    came_or_went = before.keys() ^ after.keys()
    assert {model.parent(path) for path in came_or_went} <= set(notified)
