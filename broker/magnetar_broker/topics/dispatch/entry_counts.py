"""A number for each of many entries: how many open messages of it a consumer holds; how often it was delivered before.

Fifty thousand entries of one consumer are some megabytes: small dicts from entry ids to numbers, one for each stretch
of a ledger. Ranges come from clients, so the work for one is bounded by what it finds and the number of stretches that
there are, never by how far its ends are apart, nor by what stands outside of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import chain
from typing import Final

from magnetar_broker.managed_ledger.position import Position

__all__ = ["EntryCounts"]

# Entries of one stretch: 512.
_SHIFT: Final = 9


class EntryCounts:
    __slots__ = ("_ledgers", "total")

    def __init__(self) -> None:
        # By ledger and stretch; no empty dict among them.
        self._ledgers: dict[int, dict[int, dict[int, int]]] = {}
        # The sum of all numbers.
        self.total = 0

    def __len__(self) -> int:
        return sum(len(entries) for stretches in self._ledgers.values() for entries in stretches.values())

    def __bool__(self) -> bool:
        return bool(self._ledgers)

    def __iter__(self) -> Iterator[Position]:
        for ledger_id, stretches in self._ledgers.items():
            for entry_id in chain.from_iterable(stretches.values()):
                yield Position(ledger_id, entry_id)

    def get(self, position: Position) -> int:
        """0 where there is none."""
        stretches = self._ledgers.get(position.ledger_id)
        entries = stretches.get(position.entry_id >> _SHIFT) if stretches is not None else None
        return entries.get(position.entry_id, 0) if entries is not None else 0

    def set(self, position: Position, number: int) -> None:
        """0 is none."""
        ledger_id, entry_id = position
        if not number:
            self.take_range(ledger_id, entry_id, entry_id)
            return
        entries = self._ledgers.setdefault(ledger_id, {}).setdefault(entry_id >> _SHIFT, {})
        self.total += number - entries.get(entry_id, 0)
        entries[entry_id] = number

    def increment(self, ledger_id: int, entry_ids: Collection[int]) -> None:
        """Each by one."""
        if not entry_ids:
            return
        stretches = self._ledgers.setdefault(ledger_id, {})
        for entry_id in entry_ids:
            entries = stretches.setdefault(entry_id >> _SHIFT, {})
            entries[entry_id] = entries.get(entry_id, 0) + 1
        self.total += len(entry_ids)

    def take_all(self) -> list[tuple[int, list[int]]]:
        """Removes everything, and returns the entries' ids by ledger."""
        taken = [
            (ledger_id, list(chain.from_iterable(stretches.values()))) for ledger_id, stretches in self._ledgers.items()
        ]
        self.clear()
        return taken

    def take_range(self, ledger_id: int, first: int, last: int) -> list[int]:
        """Removes entries of one ledger, both ends included, and returns the ids of those that there were."""
        stretches = self._ledgers.get(ledger_id)
        if stretches is None:
            return []
        begin, end = first >> _SHIFT, last >> _SHIFT
        if end - begin < len(stretches):
            touched = [stretch for stretch in range(begin, end + 1) if stretch in stretches]
        else:
            touched = [stretch for stretch in stretches if begin <= stretch <= end]
        taken: list[int] = []
        for stretch in touched:
            entries = stretches[stretch]
            if begin < stretch < end:
                found = list(entries)
            elif last - first < len(entries):
                found = [entry_id for entry_id in range(first, last + 1) if entry_id in entries]
            else:
                found = [entry_id for entry_id in entries if first <= entry_id <= last]
            if len(found) == len(entries):
                self.total -= sum(entries.values())
                del stretches[stretch]
            else:
                for entry_id in found:
                    self.total -= entries.pop(entry_id)
            taken += found
        if not stretches:
            del self._ledgers[ledger_id]
        return taken

    def drop_up_to(self, position: Position) -> None:
        """That one too."""
        for ledger_id in [known for known in self._ledgers if known < position.ledger_id]:
            self.total -= sum(sum(entries.values()) for entries in self._ledgers.pop(ledger_id).values())
        self.take_range(position.ledger_id, 0, position.entry_id)

    def clear(self) -> None:
        self._ledgers.clear()
        self.total = 0
