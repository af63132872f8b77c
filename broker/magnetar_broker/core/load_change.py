"""When a broker says anew how loaded it is: each time is a change of a node, which others read.

At once when the number of its bundles changed, since that is what others go by as long as nobody is busy; when its load
is notably another; and else now and then, so that what is told is never very old.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["LoadRule", "LoadSeen"]


@dataclass(frozen=True, slots=True)
class LoadSeen:
    """What is compared. Bytes and topics are for showing."""

    cpu: float
    loop_lag_s: float
    bundles: int


@dataclass(frozen=True, slots=True)
class LoadRule:
    # Of one core, and of a second's lag.
    threshold: float
    min_interval_s: float
    max_interval_s: float

    def due(self, told: LoadSeen, now: LoadSeen, since_told_s: float) -> bool:
        if now.bundles != told.bundles or since_told_s >= self.max_interval_s:
            return True
        if since_told_s < self.min_interval_s:
            return False
        return abs(now.cpu - told.cpu) >= self.threshold or abs(now.loop_lag_s - told.loop_lag_s) >= self.threshold
