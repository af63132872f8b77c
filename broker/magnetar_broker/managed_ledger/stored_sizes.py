"""The bytes that a log stores after a position, for statistics.

A ledger's entries count as equally large, as in Pulsar: the sizes of single entries are known to bookies only.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from operator import attrgetter
from typing import Final

from magnetar_broker.managed_ledger.ledger_list import ListedLedger
from magnetar_broker.position import Position

__all__ = ["StoredSizes"]

_ledger_id: Final = attrgetter("ledger_id")


class StoredSizes:
    """The sizes of one topic's ledgers at the moment when it is made: for any number of positions."""

    __slots__ = ("_ledgers", "_sizes_from")

    def __init__(self, ledgers: Sequence[ListedLedger]) -> None:
        self._ledgers = ledgers
        # The bytes of the ledger with that number and of all after it, and 0 at the end.
        self._sizes_from = [0] * (len(ledgers) + 1)
        for at in range(len(ledgers) - 1, -1, -1):
            self._sizes_from[at] = self._sizes_from[at + 1] + ledgers[at].length_bytes

    def after(self, position: Position) -> int:
        """Return the bytes of the entries after the position."""
        at = bisect_left(self._ledgers, position.ledger_id, key=_ledger_id)
        if at == len(self._ledgers) or self._ledgers[at].ledger_id > position.ledger_id:
            return self._sizes_from[at]
        ledger = self._ledgers[at]
        left = ledger.entries - min(max(0, position.entry_id + 1), ledger.entries)
        return self._sizes_from[at + 1] + (ledger.length_bytes * left // ledger.entries if left else 0)
