"""How late the event loop runs what is due: whatever holds it up shows here."""

from __future__ import annotations

from typing import Final

from magnetar_wire.clock import Clock, Timer

__all__ = ["LoopWatch"]

_TICK_S: Final = 0.5


class LoopWatch:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._due = clock.monotonic()
        self._late_s = 0.0
        self._longest_s = 0.0
        self._timer: Timer | None = None
        self._tick()

    @property
    def late_s(self) -> float:
        """The last time, or, if what is due next is later by now, that."""
        return max(0.0, self._late_s, self._clock.monotonic() - self._due)

    def take_longest_s(self) -> float:
        """The longest since this was asked last."""
        longest_s, self._longest_s = max(self._longest_s, self.late_s), 0.0
        return longest_s

    def _tick(self) -> None:
        now = self._clock.monotonic()
        self._late_s = now - self._due
        self._longest_s = max(self._longest_s, self._late_s)
        self._due = now + _TICK_S
        self._timer = self._clock.call_later(_TICK_S, self._tick)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
