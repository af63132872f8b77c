"""What can be said against a transaction without looking at what the store holds.

All that is refused here is the caller's mistake, found before anything is sent, and the same for every store.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, assert_never

from magnetar_metadata.core.paths import ROOT, ancestors_of, check_path, roots_over
from magnetar_metadata.errors import InvalidChange, ValueTooLarge
from magnetar_metadata.store import (
    ABSENT,
    ANY,
    MAX_CHANGES,
    MAX_TRANSACTION_BYTES,
    MAX_VALUE_BYTES,
    Change,
    Check,
    Delete,
    Put,
)

# What a change takes in a request besides its path and value, at most (the create of an open node, with its ACL).
CHANGE_OVERHEAD_BYTES: Final = 64


def check_transaction(changes: Sequence[Change], subtree_roots: Sequence[str]) -> None:
    """Raises `InvalidPath`, `InvalidChange` or `ValueTooLarge` for what can't be asked of any store."""
    if not 0 < len(changes) <= MAX_CHANGES:
        raise InvalidChange(f"a transaction holds 1 to {MAX_CHANGES} changes, not {len(changes)}")
    total_bytes = 0
    for change in changes:
        check_path(change.path)
        total_bytes += len(change.path.encode()) + CHANGE_OVERHEAD_BYTES
        match change:
            case Put():
                _check_put(change, subtree_roots)
                total_bytes += len(change.value)
            case Delete():
                _check_not_root(change.path)
                if change.expected < 0 and change.expected != ANY:
                    raise InvalidChange(f"delete {change.path!r}: {change.expected} is no version that a node can have")
            case Check():
                if change.expected < 0:
                    raise InvalidChange(f"check {change.path!r}: {change.expected} is no version that a node can have")
            case _:
                assert_never(change)
    if total_bytes > MAX_TRANSACTION_BYTES:
        raise ValueTooLarge(f"the transaction takes {total_bytes} bytes, above {MAX_TRANSACTION_BYTES}: split it")
    _check_together(changes)


def _check_put(put: Put, subtree_roots: Sequence[str]) -> None:
    _check_not_root(put.path)
    if len(put.value) > MAX_VALUE_BYTES:
        raise ValueTooLarge(f"the value for {put.path!r} takes {len(put.value)} bytes, above {MAX_VALUE_BYTES}")
    if put.expected < ANY:
        raise InvalidChange(f"put {put.path!r}: {put.expected} is no version that a node can have")
    if (put.ephemeral or put.sequential) and put.expected != ABSENT:
        raise InvalidChange(f"put {put.path!r}: an ephemeral or sequential node is made only, so it expects ABSENT")
    if put.ephemeral and (over := roots_over(put.path, subtree_roots)):
        raise InvalidChange(
            f"put {put.path!r}: an ephemeral node can't be at or below the declared subtree root {over[0]!r}, "
            "since it would go without a writer who tells the root's watchers: watch the folder that holds it"
        )


def _check_not_root(path: str) -> None:
    if path == ROOT:
        raise InvalidChange("the root can't be changed")


def _check_together(changes: Sequence[Change]) -> None:
    """One change for each node. A node that goes takes nothing new below it: it would come again as a parent."""
    paths: dict[str, None] = {}
    deleted = {change.path: None for change in changes if isinstance(change, Delete)}
    for change in changes:
        # Two sequential nodes with the same beginning are two nodes.
        if isinstance(change, Put) and change.sequential:
            pass
        elif change.path in paths:
            raise InvalidChange(f"{change.path!r} is changed twice in one transaction")
        paths[change.path] = None
        if deleted and isinstance(change, Put):
            for above in ancestors_of(change.path):
                if above in deleted:
                    raise InvalidChange(f"{change.path!r} is put below {above!r}, which the same transaction deletes")
