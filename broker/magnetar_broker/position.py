"""The position of an entry in a topic's log.

Ledger ids grow in the whole cluster, so the positions of a topic are in the order of the log. `(ledger, -1)` is the
position before the ledger's first entry. A position is compared and hashed as a pair.
"""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["EARLIEST", "LATEST", "LedgerRange", "Position"]

# Entries of one ledger: ledger id, first and last entry id.
LedgerRange = tuple[int, int, int]


class Position(NamedTuple):
    ledger_id: int
    entry_id: int

    @property
    def next(self) -> Position:
        """The position after this one in the same ledger. It need not have an entry."""
        return Position(self.ledger_id, self.entry_id + 1)

    @property
    def previous(self) -> Position:
        """The position before this one; for a ledger's first entry the position before the ledger."""
        return Position(self.ledger_id, self.entry_id - 1)

    def __str__(self) -> str:
        return f"{self.ledger_id}:{self.entry_id}"


# The positions before and after all possible entries.
EARLIEST: Final = Position(-1, -1)
LATEST: Final = Position(2**63 - 1, 2**63 - 1)
