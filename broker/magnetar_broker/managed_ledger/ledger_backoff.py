"""How long a log waits before it creates the ledger that replaces a failed one.

A ledger fails when too few of its bookies take entries, and each replacement costs the metadata store a few changes. A
single failure is no reason to wait: one bookie has died, and the others go on. Bookies that are overloaded fail each
ledger soon, whether or not it stored an entry before. So the pause depends on the number of failures and on time, and
not on what was stored:

    each failed ledger doubles the next pause, and each `_HALVING_S` seconds since the last failure halve it

`_failures` counts that: 1 is added at each failure, and `_HALVING_S` seconds subtract 1, down to 0. It is capped, so
that a long outage is forgotten as soon as a short one. Examples:

    a ledger fails every 10 s                 the count is 1 at each failure: no pause ever
    each ledger fails after a second          pauses grow to 4 s: then a ledger fails every 5 s
    each ledger fails at once                 pauses of 0, 0.05, 0.15, 0.35 … 5 s

Hence within t seconds a log creates at most `_MOST_FAILURES` + t / 2.5 s + 1 replacements, whatever the disks do, as
long as the topic stays open here. A topic that is opened again begins without a pause.

Logs that failed together do not come back together: a part of each pause is random.
"""

from __future__ import annotations

from typing import Final

__all__ = ["LedgerBackoff"]

_FIRST_S: Final = 0.05
_LONGEST_S: Final = 5.0
_HALVING_S: Final = 5.0
# With this many the pause is the longest.
_MOST_FAILURES: Final = 8.0


class LedgerBackoff:
    __slots__ = ("_failed_at", "_failures", "_not_before")

    def __init__(self) -> None:
        # 0 <= _failures <= _MOST_FAILURES, as of the last failure. All times are monotonic.
        self._failures = 0.0
        self._failed_at = 0.0
        self._not_before = 0.0

    def count_failure(self, now: float, random: float) -> None:
        """A ledger failed. `random` is from 0 to 1 and shortens the pause that follows to half at most."""
        expired = (now - self._failed_at) / _HALVING_S
        self._failures = min(max(self._failures - expired, 0.0) + 1.0, _MOST_FAILURES)
        self._failed_at = now
        longest_s = min(_FIRST_S * (2.0 ** (self._failures - 1.0) - 1.0), _LONGEST_S)
        self._not_before = now + longest_s * (1 - random / 2)

    def pause_s(self, now: float) -> float:
        """Return how long to wait before the next ledger is created."""
        return max(self._not_before - now, 0.0)
