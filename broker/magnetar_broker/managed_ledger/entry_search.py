"""Finds the entry of a ledger that holds a given message or byte, by reading few of its entries.

An entry has the indexes of its messages, and the size of the ledger up to it; both grow from entry to entry. So the
search is between two boundaries for which both numbers are known. At the ends of the ledger the list of ledgers has
them. Entries are mostly of the same size, so the first read is by interpolation, which is often right at once. Every
second read is by bisection, so there are at most twice as many reads as in a binary search, whatever the entries are.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import NamedTuple

from magnetar_broker.position import Position

__all__ = ["Boundary", "EntryFacts", "find_entry_with_byte", "find_entry_with_message"]


class Boundary(NamedTuple):
    """A boundary before an entry: the number of messages of the log before it, and of bytes of its ledger."""

    entry_id: int
    messages: int
    bytes: int


@dataclass(frozen=True, slots=True)
class EntryFacts:
    """The facts of one entry."""

    position: Position
    first_index: int
    messages: int
    # The bytes of the ledger before it, and its own.
    bytes_before: int
    size: int
    # It is lost, and the facts follow from its neighbours (managed_ledger/lost_entry_facts.py).
    lost: bool = False

    @property
    def front(self) -> Boundary:
        return Boundary(self.position.entry_id, self.first_index, self.bytes_before)

    @property
    def back(self) -> Boundary:
        return Boundary(self.position.entry_id + 1, self.first_index + self.messages, self.bytes_before + self.size)


# Yields the entries that must be read; send their facts.
Search = Generator[Position, EntryFacts, tuple[Boundary, Boundary]]


def find_entry_with_message(ledger_id: int, low: Boundary, high: Boundary, index: int) -> Search:
    """Return the front and back of the entry with message `index` of the log, which is between the boundaries.

    For a lost entry both are its back, or both its front if the message is its first: nothing is cut within it.
    """
    return _search(ledger_id, low, high, index, 1)


def find_entry_with_byte(ledger_id: int, low: Boundary, high: Boundary, byte: int) -> Search:
    """Return the front and back of the entry with this byte of the ledger, counted from 0. As above for a lost one."""
    return _search(ledger_id, low, high, byte, 2)


def _search(ledger_id: int, low: Boundary, high: Boundary, wanted: int, number: int) -> Search:
    bisect = False
    while high.entry_id - low.entry_id > 0:
        entries = high.entry_id - low.entry_id
        if bisect or high[number] <= low[number]:
            middle = low.entry_id + entries // 2
        else:
            share = (wanted - low[number]) * entries // (high[number] - low[number])
            middle = low.entry_id + max(0, min(share, entries - 1))
        bisect = not bisect
        facts = yield Position(ledger_id, middle)
        if wanted < facts.front[number]:
            high = facts.front
        elif wanted >= facts.back[number]:
            low = facts.back
        elif facts.lost:
            # No reader gets any of it, so nothing is cut within it.
            found = facts.back if wanted > facts.front[number] else facts.front
            return found, found
        else:
            return facts.front, facts.back
    # It is in a gap between two entries: before the second.
    return high, high
