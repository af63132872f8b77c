"""Rules for a lost entry in a plan: its messages and bytes are what there is between its readable neighbours.

The nearest readable entry before it, or the list of ledgers, has the number of messages and bytes before it; the
nearest one after it, or the list, those up to its end. If several lost entries are side by side, each counts as all of
them together: what each of them had is unknown, and no reader gets any of it, so only the limits of a plan are less
exact there.

Neighbours are searched for in steps that grow, and then by binary search, so that a ledger without any readable entry
takes few reads. A readable entry between two lost ones may be missed, which makes limits less exact in the same way.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

from magnetar_broker.managed_ledger.entry_search import Boundary, EntryFacts
from magnetar_broker.managed_ledger.ledger_list import LedgerList
from magnetar_broker.managed_ledger.read_plan import front_of_ledger
from magnetar_broker.position import Position

__all__ = ["facts_of_lost", "find_nearest_readable"]

T = TypeVar("T")
Search = Generator[Position, EntryFacts | None, EntryFacts | None]


def facts_of_lost(ledger_list: LedgerList, lost: Position) -> Generator[Position, EntryFacts | None, EntryFacts]:
    """Return the facts of a lost entry. Yields entries of the same ledger to read; send None if one is lost, too."""
    listed = ledger_list.find(lost.ledger_id)
    assert listed is not None
    entries, back = listed.entries, Boundary(listed.entries, listed.last_index + 1, listed.length_bytes)
    front = front_of_ledger(ledger_list, lost.ledger_id)
    in_front: Search = find_nearest_readable(lost, -1)
    before = yield from in_front
    if before is not None:
        front = before.back
    at_back: Search = find_nearest_readable(lost, entries)
    behind = yield from at_back
    if behind is not None:
        back = behind.front
    messages, bytes_ = (front.messages, front.bytes) if front is not None else (back.messages, 0)
    return EntryFacts(lost, messages, max(0, back.messages - messages), bytes_, max(0, back.bytes - bytes_), lost=True)


def find_nearest_readable(lost: Position, end: int) -> Generator[Position, T | None, T | None]:
    """Return the nearest readable entry in the direction of `end`, which is no entry itself; None: all are lost.

    Yields entries of the same ledger to read; send what was read, or None if one is lost, too."""
    way = 1 if end > lost.entry_id else -1
    unreadable, readable, step = lost.entry_id, end, 1
    found: T | None = None
    while abs(readable - unreadable) > 1:
        far = abs(readable - unreadable)
        look_at = unreadable + way * (min(step, far - 1) if found is None else far // 2)
        facts = yield Position(lost.ledger_id, look_at)
        if facts is None:
            unreadable = look_at
            step *= 2
        else:
            readable, found = look_at, facts
    return found
