"""An entry's place in a topic's log.

Ledger ids grow over the whole cluster, so positions of one topic are in the order of the log. `(ledger, -1)` stands
before the ledger's first entry. A position is compared and hashed as the pair that it is.
"""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["EARLIEST", "LATEST", "Position"]


class Position(NamedTuple):
    ledger_id: int
    entry_id: int

    @property
    def next(self) -> Position:
        """The place right behind, whether there is an entry or not."""
        return Position(self.ledger_id, self.entry_id + 1)

    @property
    def previous(self) -> Position:
        """The place right before; that of a ledger's first entry is before the ledger."""
        return Position(self.ledger_id, self.entry_id - 1)

    def __str__(self) -> str:
        return f"{self.ledger_id}:{self.entry_id}"


# Before, and behind, every entry that there can be.
EARLIEST: Final = Position(-1, -1)
LATEST: Final = Position(2**63 - 1, 2**63 - 1)
