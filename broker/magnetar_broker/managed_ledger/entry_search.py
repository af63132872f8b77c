"""Finds the entry of a ledger that holds a certain message, or a certain byte, by looking at few of its entries.

What an entry says of itself are the numbers of its messages in the whole log (the index that a broker gave them) and
how many bytes the ledger has up to it; both grow from entry to entry. So a place is looked for between two boundaries
of which both numbers are known: at the ledger's ends the list of ledgers knows them. Entries are mostly alike, so the
first look goes where the number would be if all were, which is often right at once; every other look halves what is
left, so that whatever the entries are like there are no more than twice as many looks as halves.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import NamedTuple

from magnetar_broker.managed_ledger.position import Position

__all__ = ["Boundary", "EntryFacts", "entry_with_byte", "entry_with_message"]


class Boundary(NamedTuple):
    """Right in front of an entry: how many messages the log has had by then, and how many bytes its ledger."""

    entry_id: int
    messages: int
    bytes: int


@dataclass(frozen=True, slots=True)
class EntryFacts:
    """What one entry says of itself."""

    position: Position
    first_index: int
    messages: int
    # Of the ledger, before it, and the entry's own.
    bytes_before: int
    size: int
    # It says nothing any more: its neighbours do (broker/magnetar_broker/managed_ledger/lost_entry_facts.py).
    lost: bool = False

    @property
    def front(self) -> Boundary:
        return Boundary(self.position.entry_id, self.first_index, self.bytes_before)

    @property
    def back(self) -> Boundary:
        return Boundary(self.position.entry_id + 1, self.first_index + self.messages, self.bytes_before + self.size)


# Yields the entries that it has to look at.
Search = Generator[Position, EntryFacts, tuple[Boundary, Boundary]]


def entry_with_message(ledger_id: int, low: Boundary, high: Boundary, index: int) -> Search:
    """Front and back of the entry with message `index` of the log: it is between the boundaries. Of one that is lost
    twice the same, its back, or its front if that is it; here and below."""
    return _search(ledger_id, low, high, index, 1)


def entry_with_byte(ledger_id: int, low: Boundary, high: Boundary, byte: int) -> Search:
    """Front and back of the entry with byte `byte` of the ledger, the first one's being 0."""
    return _search(ledger_id, low, high, byte, 2)


def _search(ledger_id: int, low: Boundary, high: Boundary, wanted: int, number: int) -> Search:
    by_halves = False
    while high.entry_id - low.entry_id > 0:
        entries = high.entry_id - low.entry_id
        if by_halves or high[number] <= low[number]:
            look_at = low.entry_id + entries // 2
        else:
            share = (wanted - low[number]) * entries // (high[number] - low[number])
            look_at = low.entry_id + max(0, min(share, entries - 1))
        by_halves = not by_halves
        facts = yield Position(ledger_id, look_at)
        if wanted < facts.front[number]:
            high = facts.front
        elif wanted >= facts.back[number]:
            low = facts.back
        elif facts.lost:
            # Nobody gets any of it, so nothing is cut within it.
            found = facts.back if wanted > facts.front[number] else facts.front
            return found, found
        else:
            return facts.front, facts.back
    # It is in a gap between two of them: before the second.
    return high, high
