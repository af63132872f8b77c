"""When the ledger that is written makes room for the next.

Storage is freed by whole ledgers, so a ledger must end: when it holds enough, or is old. Not before it has reached a
least age, so that a busy topic's ledgers do not become too many; but for its age it goes at its time, be it idle.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["RollRule"]


@dataclass(frozen=True, slots=True)
class RollRule:
    max_entries: int
    max_bytes: int
    min_age_s: float
    max_age_s: float

    def due(self, entries: int, length_bytes: int, age_s: float) -> bool:
        if entries >= self.max_entries or length_bytes >= self.max_bytes:
            return age_s >= self.min_age_s
        return age_s >= self.max_age_s
