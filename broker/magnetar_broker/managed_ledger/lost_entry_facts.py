"""What an entry must have been that no bookie has any more: what there is between its neighbours.

How many messages and bytes there were in front of it the nearest readable entry before it says, or the list of ledgers
where there is none; the nearest one behind it, or the list, how many there were by its end. Where several are lost side
by side each is told as if it were all of them: nobody can tell any more which of them had what, and nobody will get any
of it, so a plan loses nothing but the exactness of its limits just there.

The neighbours are looked for in steps that grow, and then by halves, so that a ledger of which nothing is left costs
few looks. Where a readable one lies between two that are lost it may be missed, which costs the same exactness.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

from magnetar_broker.managed_ledger.entry_search import Boundary, EntryFacts
from magnetar_broker.managed_ledger.ledger_list import LedgerList
from magnetar_broker.managed_ledger.position import Position
from magnetar_broker.managed_ledger.read_plan import front_of_ledger

__all__ = ["facts_of_lost", "nearest_readable"]

T = TypeVar("T")
Search = Generator[Position, EntryFacts | None, EntryFacts | None]


def facts_of_lost(log: LedgerList, lost: Position) -> Generator[Position, EntryFacts | None, EntryFacts]:
    """Yields entries of the same ledger, and is sent None where one is lost, too."""
    listed = log.find(lost.ledger_id)
    assert listed is not None
    entries, back = listed.entries, Boundary(listed.entries, listed.last_index + 1, listed.length_bytes)
    front = front_of_ledger(log, lost.ledger_id)
    in_front: Search = nearest_readable(lost, -1)
    before = yield from in_front
    if before is not None:
        front = before.back
    at_back: Search = nearest_readable(lost, entries)
    behind = yield from at_back
    if behind is not None:
        back = behind.front
    messages, bytes_ = (front.messages, front.bytes) if front is not None else (back.messages, 0)
    return EntryFacts(lost, messages, max(0, back.messages - messages), bytes_, max(0, back.bytes - bytes_), lost=True)


def nearest_readable(lost: Position, end: int) -> Generator[Position, T | None, T | None]:
    """The readable entry that is nearest to it, on the way to `end`, which is no entry itself; None: all are lost.

    Yields entries of the same ledger, and is sent what they say, or None where one is lost, too."""
    way = 1 if end > lost.entry_id else -1
    gone, readable, step = lost.entry_id, end, 1
    found: T | None = None
    while abs(readable - gone) > 1:
        far = abs(readable - gone)
        look_at = gone + way * (min(step, far - 1) if found is None else far // 2)
        facts = yield Position(lost.ledger_id, look_at)
        if facts is None:
            gone = look_at
            step *= 2
        else:
            readable, found = look_at, facts
    return found
