"""How long to wait before something is tried again: twice as long each time, up to a bound, and never quite as long as
the others who wait for the same."""

from __future__ import annotations

from typing import Final

from magnetar_wire.randomness import Randomness

__all__ = ["Backoff"]

FIRST_S: Final = 0.1
LONGEST_S: Final = 2.0
# What lasted so long went well. What was over sooner is no reason to try again without a pause: a broker that opens and
# ends at once would be asked, and sent all that is pending, as fast as both can.
SETTLED_S: Final = 1.0


class Backoff:
    def __init__(self, randomness: Randomness, first_s: float = FIRST_S, longest_s: float = LONGEST_S) -> None:
        self._randomness = randomness
        self._first_s = first_s
        self._longest_s = longest_s
        self._next_s = first_s

    def next(self) -> float:
        """Seconds: between half of what is due and all of it."""
        due = self._next_s
        self._next_s = min(due * 2, self._longest_s)
        return due * (0.5 + 0.5 * self._randomness.random())

    def after(self, lasted_s: float) -> float:
        """Seconds, when something that went well at first is over after `lasted_s`: 0 if it had settled."""
        if lasted_s < SETTLED_S:
            return self.next()
        self.reset()
        return 0.0

    def reset(self) -> None:
        """It went well."""
        self._next_s = self._first_s
