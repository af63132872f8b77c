"""How late the event loop runs timers that are due. The delay shows what blocks the loop."""

from __future__ import annotations

from typing import Final

from magnetar_wire.clock import Clock, Timer

__all__ = ["LoopDelayMonitor"]

_TICK_S: Final = 0.5


class LoopDelayMonitor:
    """Measures the delay of a timer that is due every half second."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._due = clock.monotonic()
        self._delay_s = 0.0
        self._longest_s = 0.0
        self._timer: Timer | None = None
        self._tick()

    @property
    def delay_s(self) -> float:
        """The delay of the last timer, or of the next one if that is larger by now."""
        return max(0.0, self._delay_s, self._clock.monotonic() - self._due)

    def pop_longest_delay_s(self) -> float:
        """Return the longest delay since the last call."""
        longest_s, self._longest_s = max(self._longest_s, self.delay_s), 0.0
        return longest_s

    def _tick(self) -> None:
        now = self._clock.monotonic()
        self._delay_s = now - self._due
        self._longest_s = max(self._longest_s, self._delay_s)
        self._due = now + _TICK_S
        self._timer = self._clock.call_later(_TICK_S, self._tick)

    def close(self) -> None:
        """Stop measuring."""
        if self._timer is not None:
            self._timer.cancel()
