"""A number for each of many entries: its unacknowledged messages, how often it was redelivered, or its hold.

Fifty thousand entries take a few megabytes: small dicts from entry ids to numbers, one for each block of a ledger.
Clients choose ranges, so the work for a range is bounded by the entries that it finds and the number of blocks, not by
the distance of its ends.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import chain
from typing import Final

from magnetar_broker.position import LedgerRange, Position

__all__ = ["EntryCounts"]

# A block has 512 entries.
_SHIFT: Final = 9
_MAX_ID: Final = 2**63 - 1


class EntryCounts:
    __slots__ = ("_ledgers", "total")

    def __init__(self) -> None:
        # By ledger and block. No dict is empty.
        self._ledgers: dict[int, dict[int, dict[int, int]]] = {}
        # The sum of all numbers.
        self.total = 0

    def __len__(self) -> int:
        return sum(len(entries) for blocks in self._ledgers.values() for entries in blocks.values())

    def __bool__(self) -> bool:
        return bool(self._ledgers)

    def __iter__(self) -> Iterator[Position]:
        for ledger_id, blocks in self._ledgers.items():
            for entry_id in chain.from_iterable(blocks.values()):
                yield Position(ledger_id, entry_id)

    def get(self, position: Position) -> int:
        """Return the entry's number; 0: it has none."""
        blocks = self._ledgers.get(position.ledger_id)
        entries = blocks.get(position.entry_id >> _SHIFT) if blocks is not None else None
        return entries.get(position.entry_id, 0) if entries is not None else 0

    def get_each(self, positions: Iterable[Position]) -> list[int]:
        """Return the numbers of entries; 0 for one that has none."""
        known_ledger_id = known_block = -1
        entries: dict[int, int] = {}
        found: list[int] = []
        for ledger_id, entry_id in positions:
            block = entry_id >> _SHIFT
            if block != known_block or ledger_id != known_ledger_id:
                known_ledger_id, known_block = ledger_id, block
                entries = self._ledgers.get(ledger_id, {}).get(block, {})
            found.append(entries.get(entry_id, 0))
        return found

    def set(self, position: Position, number: int) -> None:
        """Set the entry's number; 0 removes it."""
        ledger_id, entry_id = position
        if not number:
            self.take_range(ledger_id, entry_id, entry_id)
            return
        entries = self._ledgers.setdefault(ledger_id, {}).setdefault(entry_id >> _SHIFT, {})
        self.total += number - entries.get(entry_id, 0)
        entries[entry_id] = number

    def set_each(self, positions: Iterable[Position], numbers: Iterable[int]) -> None:
        """Set the numbers of entries, which are not 0."""
        known_ledger_id = known_block = -1
        entries: dict[int, int] = {}
        total = self.total
        for (ledger_id, entry_id), number in zip(positions, numbers, strict=True):
            block = entry_id >> _SHIFT
            if block != known_block or ledger_id != known_ledger_id:
                known_ledger_id, known_block = ledger_id, block
                entries = self._ledgers.setdefault(ledger_id, {}).setdefault(block, {})
            total += number - entries.get(entry_id, 0)
            entries[entry_id] = number
        self.total = total

    def increment(self, ledger_id: int, entry_ids: Collection[int]) -> None:
        """Add one to the number of each entry."""
        if not entry_ids:
            return
        blocks = self._ledgers.setdefault(ledger_id, {})
        for entry_id in entry_ids:
            entries = blocks.setdefault(entry_id >> _SHIFT, {})
            entries[entry_id] = entries.get(entry_id, 0) + 1
        self.total += len(entry_ids)

    def take_all(self) -> list[tuple[int, list[int]]]:
        """Remove all entries, and return their ids by ledger."""
        taken = [(ledger_id, list(chain.from_iterable(blocks.values()))) for ledger_id, blocks in self._ledgers.items()]
        self.clear()
        return taken

    def find_range(self, ledger_id: int, first: int, last: int) -> list[tuple[int, int]]:
        """Return the ids and numbers of entries of one ledger, both ends included."""
        if first == last:
            number = self.get(Position(ledger_id, first))
            return [(first, number)] if number else []
        blocks = self._ledgers.get(ledger_id, {})
        found = _find_entries(blocks, first, last)
        return [(entry_id, blocks[block][entry_id]) for block, entry_ids in found for entry_id in entry_ids]

    def find_ranges_up_to(self, position: Position) -> list[LedgerRange]:
        """Return ranges, at most one for each ledger, with all entries up to this one."""
        ranges = [
            (ledger_id, 0, position.entry_id if ledger_id == position.ledger_id else _MAX_ID)
            for ledger_id in self._ledgers
            if ledger_id <= position.ledger_id
        ]
        return [one for one in ranges if self.find_range(*one)]

    def take_range(self, ledger_id: int, first: int, last: int) -> list[int]:
        """Remove entries of one ledger, both ends included, and return the ids of those that had a number."""
        blocks = self._ledgers.get(ledger_id)
        if blocks is None:
            return []
        taken: list[int] = []
        for block, found in _find_entries(blocks, first, last):
            entries = blocks[block]
            if len(found) == len(entries):
                self.total -= sum(entries.values())
                del blocks[block]
            else:
                for entry_id in found:
                    self.total -= entries.pop(entry_id)
            taken += found
        if not blocks:
            del self._ledgers[ledger_id]
        return taken

    def take_each(self, ranges: Iterable[LedgerRange]) -> tuple[list[int], list[LedgerRange]]:
        """Remove the entries of ranges. Return the numbers that they had, and the ranges with entries that had none."""
        numbers: list[int] = []
        missing: list[LedgerRange] = []
        for one in ranges:
            ledger_id, first, last = one
            blocks = self._ledgers.get(ledger_id, {})
            if first == last:  # usual
                entries = blocks.get(first >> _SHIFT)
                if entries is None or not (number := entries.pop(first, 0)):
                    missing.append(one)
                    continue
                numbers.append(number)
                self.total -= number
                if not entries:
                    del blocks[first >> _SHIFT]
                    if not blocks:
                        del self._ledgers[ledger_id]
            else:
                found = self.find_range(ledger_id, first, last)
                numbers += [number for _, number in found]
                self.take_range(ledger_id, first, last)
                if len(found) <= last - first:
                    missing.append(one)
        return numbers, missing

    def drop_up_to(self, position: Position) -> None:
        """Remove entries up to this one."""
        for ledger_id in [known for known in self._ledgers if known < position.ledger_id]:
            self.total -= sum(sum(entries.values()) for entries in self._ledgers.pop(ledger_id).values())
        self.take_range(position.ledger_id, 0, position.entry_id)

    def clear(self) -> None:
        self._ledgers.clear()
        self.total = 0


def _find_entries(blocks: dict[int, dict[int, int]], first: int, last: int) -> list[tuple[int, list[int]]]:
    """Return the blocks that have entries in this range, and the ids of these entries."""
    begin, end = first >> _SHIFT, last >> _SHIFT
    if end - begin < len(blocks):
        touched = [block for block in range(begin, end + 1) if block in blocks]
    else:
        touched = [block for block in blocks if begin <= block <= end]
    found: list[tuple[int, list[int]]] = []
    for block in touched:
        entries = blocks[block]
        if begin < block < end:
            found.append((block, list(entries)))
        elif last - first < len(entries):
            found.append((block, [entry_id for entry_id in range(first, last + 1) if entry_id in entries]))
        else:
            found.append((block, [entry_id for entry_id in entries if first <= entry_id <= last]))
    return found
