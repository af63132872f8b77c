"""How long a log waits before it makes its next ledger.

A ledger that failed after it stored something is replaced at once: one bookie has died, and the others go on. A ledger
that failed and stored nothing says more: whatever failed it is likely to fail the next one, and each of them costs the
metadata store a few changes and the bookies the records that nobody will read. So after the first of these the pause is
hardly noticed, and each further one doubles it, up to a bound. The first entry that is stored ends that.

Topics that failed together do not come back together: a part of each pause is random.
"""

from __future__ import annotations

from typing import Final

__all__ = ["LedgerBackoff"]

_FIRST_S: Final = 0.05
_LONGEST_S: Final = 5.0
_MOST_DOUBLINGS: Final = 16


class LedgerBackoff:
    __slots__ = ("fruitless",)

    def __init__(self) -> None:
        # How many ledgers in a row have failed and stored nothing.
        self.fruitless = 0

    def ledger_failed(self) -> None:
        """A ledger failed, and nothing is in it."""
        self.fruitless += 1

    def entry_stored(self) -> None:
        self.fruitless = 0

    def pause_s(self, random: float) -> float:
        """Before the next ledger is made. `random` is from 0 to 1 and shortens the pause to half at most."""
        if not self.fruitless:
            return 0.0
        longest_s = min(_FIRST_S * (1 << min(self.fruitless - 1, _MOST_DOUBLINGS)), _LONGEST_S)
        return longest_s * (1 - random / 2)
