"""When the current ledger of a topic is closed and followed by another one.

Storage is freed by whole ledgers, so a ledger must end: when it holds enough, or is old. A full ledger is not closed
before it has reached a minimum age, so that a busy topic does not get too many ledgers.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

__all__ = ["RollRule"]


@dataclass(frozen=True, slots=True)
class RollRule:
    max_entries: int
    max_bytes: int
    min_age_s: float
    max_age_s: float

    def find_limits(self, age_s: float) -> tuple[int, int]:
        """Return the number of entries, and of bytes, from which on a ledger of this age is due to be closed."""
        if age_s >= self.max_age_s:
            return 0, 0
        if age_s >= self.min_age_s:
            return self.max_entries, self.max_bytes
        return sys.maxsize, sys.maxsize
