"""Checks of a transaction that need no knowledge of the store's content.

Everything that is refused here is the caller's mistake. It is found before anything is sent, and is the same for every
store.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, assert_never

from magnetar_metadata.errors import InvalidChange, ValueTooLarge
from magnetar_metadata.paths import ROOT, ancestors_of, check_path, counter_path, find_roots_above
from magnetar_metadata.store import (
    ABSENT,
    ANY,
    MAX_CHANGES,
    MAX_TRANSACTION_BYTES,
    MAX_VALUE_BYTES,
    MAX_VERSION,
    Change,
    Check,
    Delete,
    Put,
)

# The maximum length of the chroot, which ZooKeeper puts before each path.
MAX_CHROOT_BYTES: Final = 32
# The maximum size of a node in a request, without its path and value: 48 bytes for a create with its ACL.
CHANGE_OVERHEAD_BYTES: Final = 48 + MAX_CHROOT_BYTES


def check_transaction(changes: Sequence[Change], subtree_roots: Sequence[str]) -> None:
    """Check a transaction. Raises `InvalidPath`, `InvalidChange` or `ValueTooLarge`."""
    if not 0 < len(changes) <= MAX_CHANGES:
        raise InvalidChange(f"a transaction can't have {len(changes)} changes: use 1 … {MAX_CHANGES}")
    for change in changes:
        check_path(change.path)
        match change:
            case Put():
                _check_not_root(change.path)
                _check_version(change, ABSENT, ANY)
                _check_put(change, subtree_roots)
            case Delete():
                _check_not_root(change.path)
                _check_version(change, ANY)
            case Check():
                _check_version(change)
            case _:
                assert_never(change)
    total_bytes = _request_bytes(changes, subtree_roots)
    if total_bytes > MAX_TRANSACTION_BYTES:
        raise ValueTooLarge(
            f"the transaction has {total_bytes} bytes, including parents that may be missing, above the "
            f"limit of {MAX_TRANSACTION_BYTES}: split it, or use shorter paths"
        )
    _check_together(changes)


def _request_bytes(changes: Sequence[Change], subtree_roots: Sequence[str]) -> int:
    """Return the maximum size of the request, for any content of the store, so that no store refuses it later.

    All parents count, though most of them exist. Creating them in advance would leave them behind if the transaction
    were refused.
    """
    parents: dict[str, None] = {}
    counters: dict[str, None] = {}
    total_bytes = 0
    for change in changes:
        total_bytes += len(change.path.encode()) + CHANGE_OVERHEAD_BYTES
        if isinstance(change, Put):
            total_bytes += len(change.value)
            if change.ephemeral and change.expected >= 0:  # a delete, a create and a set: `MultiPlan`
                total_bytes += 2 * (len(change.path.encode()) + CHANGE_OVERHEAD_BYTES) + len(change.value)
            if change.expected in (ABSENT, ANY):
                parents.update(dict.fromkeys(ancestors_of(change.path)))
        if not isinstance(change, Check):
            counters.update(dict.fromkeys(counter_path(root) for root in find_roots_above(change.path, subtree_roots)))
    return total_bytes + sum(len(path.encode()) + CHANGE_OVERHEAD_BYTES for path in [*parents, *counters])


def _check_version(change: Change, *besides: int) -> None:
    """Check that the expected version is one that a node can have, or in `besides`. True would count as 1."""
    expected: object = change.expected
    if type(expected) is not int or not (0 <= expected <= MAX_VERSION or expected in besides):
        raise InvalidChange(f"{type(change).__name__.lower()} {change.path!r}: {expected!r} is not a valid version")


def _check_put(put: Put, subtree_roots: Sequence[str]) -> None:
    value: object = put.value
    if not isinstance(value, bytes):
        raise InvalidChange(f"put {put.path!r}: a value must be bytes, not {type(value).__name__}")
    if len(put.value) > MAX_VALUE_BYTES:
        raise ValueTooLarge(
            f"the value for {put.path!r} has {len(put.value)} bytes, above the limit of {MAX_VALUE_BYTES}"
        )
    if put.sequential and put.expected != ABSENT:
        raise InvalidChange(f"put {put.path!r}: a sequential node can only be created: expect ABSENT")
    if put.ephemeral and put.expected == ANY:
        raise InvalidChange(
            f"put {put.path!r}: an ephemeral node is created (ABSENT) or replaces a node at a version: "
            "expect one of the two, not ANY"
        )
    if put.ephemeral and (over := find_roots_above(put.path, subtree_roots)):
        raise InvalidChange(
            f"put {put.path!r}: an ephemeral node can't be at or below the declared subtree root "
            f"{over[0]!r}: when its session ends, nothing notifies the root's watchers. Watch the parent "
            "instead"
        )


def _check_not_root(path: str) -> None:
    if path == ROOT:
        raise InvalidChange("the root can't be changed")


def _check_together(changes: Sequence[Change]) -> None:
    """Check that no node is changed twice, and that nothing is put below a deleted node, which would recreate it."""
    paths: dict[str, None] = {}
    deleted = {change.path: None for change in changes if isinstance(change, Delete)}
    for change in changes:
        # Two sequential nodes with the same path prefix are two nodes.
        if isinstance(change, Put) and change.sequential:
            pass
        elif change.path in paths:
            raise InvalidChange(f"{change.path!r} is changed twice in one transaction: merge the two changes")
        paths[change.path] = None
        if deleted and isinstance(change, Put):
            for above in ancestors_of(change.path):
                if above in deleted:
                    raise InvalidChange(f"put {change.path!r}: the same transaction deletes its parent {above!r}")
