"""A number for each of many entries: how many open messages of it a consumer holds; how often it was delivered before.

Fifty thousand entries of one consumer are some megabytes: a dict per ledger, from entry ids to small numbers. Ranges
come from clients, so the work for one is bounded by what there is, never by how far its ends are apart.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from magnetar_broker.core.position import Position

__all__ = ["EntryNumbers"]


class EntryNumbers:
    __slots__ = ("_ledgers", "total")

    def __init__(self) -> None:
        # No empty dict among them.
        self._ledgers: dict[int, dict[int, int]] = {}
        # The sum of all numbers.
        self.total = 0

    def __len__(self) -> int:
        return sum(map(len, self._ledgers.values()))

    def __bool__(self) -> bool:
        return bool(self._ledgers)

    def __iter__(self) -> Iterator[Position]:
        for ledger_id, entries in self._ledgers.items():
            for entry_id in entries:
                yield Position(ledger_id, entry_id)

    def get(self, position: Position) -> int:
        """0 where there is none."""
        entries = self._ledgers.get(position.ledger_id)
        return entries.get(position.entry_id, 0) if entries is not None else 0

    def set(self, position: Position, number: int) -> None:
        """0 is none."""
        ledger_id, entry_id = position
        entries = self._ledgers.get(ledger_id)
        if entries is None:
            if not number:
                return
            entries = self._ledgers[ledger_id] = {}
        if number:
            self.total += number - entries.get(entry_id, 0)
            entries[entry_id] = number
        else:
            self.total -= entries.pop(entry_id, 0)
            self._drop_empty(ledger_id, entries)

    def increment(self, ledger_id: int, entry_ids: Collection[int]) -> None:
        """Each by one."""
        if entry_ids:
            entries = self._ledgers.setdefault(ledger_id, {})
            for entry_id in entry_ids:
                entries[entry_id] = entries.get(entry_id, 0) + 1
            self.total += len(entry_ids)

    def take_all(self) -> list[tuple[int, list[int]]]:
        """Removes everything, and returns the entries' ids by ledger."""
        taken = [(ledger_id, list(entries)) for ledger_id, entries in self._ledgers.items()]
        self.clear()
        return taken

    def take_range(self, ledger_id: int, first: int, last: int) -> list[int]:
        """Removes entries of one ledger, both ends included, and returns the ids of those that there were."""
        entries = self._ledgers.get(ledger_id)
        if entries is None:
            return []
        if last - first < len(entries):
            found = [entry_id for entry_id in range(first, last + 1) if entry_id in entries]
        else:
            found = [entry_id for entry_id in entries if first <= entry_id <= last]
        for entry_id in found:
            self.total -= entries.pop(entry_id)
        self._drop_empty(ledger_id, entries)
        return found

    def drop_up_to(self, position: Position) -> None:
        """That one too."""
        for ledger_id in [known for known in self._ledgers if known < position.ledger_id]:
            self.total -= sum(self._ledgers.pop(ledger_id).values())
        self.take_range(position.ledger_id, 0, position.entry_id)

    def clear(self) -> None:
        self._ledgers.clear()
        self.total = 0

    def _drop_empty(self, ledger_id: int, entries: dict[int, int]) -> None:
        if not entries:
            del self._ledgers[ledger_id]
