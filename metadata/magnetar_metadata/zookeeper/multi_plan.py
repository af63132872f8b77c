"""The conversion of a transaction into a ZooKeeper multi, which has no ANY, no implicit parents and no subtrees.

A multi is a list of creates, sets, deletes and checks that are all executed, or none. Its content depends on the nodes
that exist: an ANY put is a set or a create, and missing parents must be created. So the plan starts with assumptions
(the nodes of ANY puts exist, and all parents exist), and corrects them after a refusal: `learn` returns whether to send
the corrected plan, to find out first which parents are missing, or to report the refusal to the caller.

Example: Put("/a/b/c", ANY), where only "/a" exists. The set is refused (no node): assume a create. The create is
refused (no node): look for parents. "/a/b" is missing: create it before "/a/b/c". If another client creates "/a/b" in
between, its create is refused (node exists): leave it out again.

A put that replaces a node with an ephemeral one is a delete and a create, and also a set if the new node would
otherwise have the version that was expected of the old one.

The counter of each changed subtree is set in the same multi. It comes last, so a refusal's index in the multi leads to
the refused change, and not to a counter.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import assert_never

from magnetar_metadata.paths import ancestors_of, counter_path, find_roots_above
from magnetar_metadata.store import ABSENT, ANY, Change, Check, Delete, Put


class Kind(enum.Enum):
    CREATE = "create"
    SET = "set"
    DELETE = "delete"
    CHECK = "check"


class Role(enum.Enum):
    """The purpose of an operation."""

    CHANGE = "change"
    PARENT = "parent"
    COUNTER = "counter"


class Refusal(enum.Enum):
    """The reason for which an operation is refused."""

    NO_NODE = "no node"
    BAD_VERSION = "bad version"
    NODE_EXISTS = "node exists"
    NOT_EMPTY = "not empty"
    NO_CHILDREN_ALLOWED = "no children allowed"


class Next(enum.Enum):
    """The next step after a refusal."""

    AGAIN = "send the corrected plan"
    LOOK_FOR_PARENTS = "find out which of `parents` are missing, call `set_missing_parents`, and send the plan"
    MAKE_COUNTERS = "create the change counters, and send the plan"
    REPORT = "raise the refusal"


@dataclass(frozen=True, slots=True)
class Operation:
    kind: Kind
    role: Role
    path: str
    # The index of the change that this operation belongs to.
    index: int
    value: bytes = b""
    # ANY: any version.
    version: int = ANY
    ephemeral: bool = False
    sequential: bool = False


class MultiPlan:
    """The operations of one transaction, under the current assumptions."""

    def __init__(self, changes: Sequence[Change], roots: Iterable[str]) -> None:
        self._changes = changes
        self._roots = tuple(roots)
        # Nodes of ANY puts that are assumed not to exist.
        self._absent: dict[str, None] = {}
        self._missing_parents: dict[str, None] = {}

    def operations(self) -> list[Operation]:
        operations: list[Operation] = []
        created: dict[str, None] = {}
        for index, change in enumerate(self._changes):
            for operation in self._operations(change, index):
                if operation.kind is Kind.CREATE:
                    for above in ancestors_of(operation.path):
                        if above in self._missing_parents and above not in created:
                            created[above] = None
                            operations.append(Operation(Kind.CREATE, Role.PARENT, above, index))
                    created[operation.path] = None
                operations.append(operation)
        return operations + self._counters()

    def learn(self, refused: Operation, why: Refusal) -> Next:
        if refused.role is Role.COUNTER:
            return Next.MAKE_COUNTERS if why is Refusal.NO_NODE else Next.REPORT
        if refused.kind is Kind.CREATE and why is Refusal.NO_NODE:
            return Next.LOOK_FOR_PARENTS
        if refused.role is Role.PARENT and why is Refusal.NODE_EXISTS:
            self._missing_parents.pop(refused.path, None)
            return Next.AGAIN
        change = self._changes[refused.index]
        if refused.role is Role.CHANGE and isinstance(change, Put) and change.expected == ANY:
            if refused.kind is Kind.SET and why is Refusal.NO_NODE:
                self._absent[change.path] = None
                return Next.AGAIN
            if refused.kind is Kind.CREATE and why is Refusal.NODE_EXISTS:
                self._absent.pop(change.path, None)
                return Next.AGAIN
        return Next.REPORT

    def parents(self) -> list[str]:
        """Return all nodes that must exist for the creates."""
        creates = (operation for operation in self.operations() if operation.kind is Kind.CREATE)
        return list(dict.fromkeys(above for operation in creates for above in ancestors_of(operation.path)))

    def set_missing_parents(self, paths: Iterable[str]) -> None:
        self._missing_parents = dict.fromkeys(paths)

    def _operations(self, change: Change, index: int) -> list[Operation]:
        if not (isinstance(change, Put) and change.ephemeral and change.expected >= 0):
            return [self._operation(change, index)]
        path, value = change.path, change.value
        replacing = [
            Operation(Kind.DELETE, Role.CHANGE, path, index, version=change.expected),
            Operation(Kind.CREATE, Role.CHANGE, path, index, value, ephemeral=True),
        ]
        if change.expected == 0:
            replacing.append(Operation(Kind.SET, Role.CHANGE, path, index, value, version=0))
        return replacing

    def _operation(self, change: Change, index: int) -> Operation:
        match change:
            case Put(path, value, expected):
                if expected == ABSENT or path in self._absent:
                    return Operation(
                        Kind.CREATE,
                        Role.CHANGE,
                        path,
                        index,
                        value,
                        ephemeral=change.ephemeral,
                        sequential=change.sequential,
                    )
                return Operation(Kind.SET, Role.CHANGE, path, index, value, expected)
            case Delete(path, expected):
                return Operation(Kind.DELETE, Role.CHANGE, path, index, version=expected)
            case Check(path, expected):
                return Operation(Kind.CHECK, Role.CHANGE, path, index, version=expected)
            case _:
                assert_never(change)

    def _counters(self) -> list[Operation]:
        changed = [change.path for change in self._changes if not isinstance(change, Check)]
        roots = dict.fromkeys(root for path in changed for root in find_roots_above(path, self._roots))
        last = len(self._changes) - 1
        return [Operation(Kind.SET, Role.COUNTER, counter_path(root), last) for root in roots]
