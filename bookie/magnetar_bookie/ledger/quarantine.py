"""Bookies that failed lately: not chosen for new entries for some time.

One that fails again soon after is kept away twice as long as before, up to a limit: a bookie that is registered and yet
can't be reached from here would otherwise have a ledger change its ensemble again and again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from magnetar_wire.clock import Clock, Timer

__all__ = ["Quarantine"]

_LONGEST_TIMES: Final = 32


@dataclass(slots=True)
class _Stay:
    began: float
    length_s: float
    # Runs while it lasts.
    timer: Timer | None


class Quarantine:
    def __init__(self, clock: Clock, time_s: float, ended: Callable[[], object]) -> None:
        self._clock = clock
        self._time_s = time_s
        # Called when a bookie may be chosen again.
        self._ended = ended
        self._stays: dict[str, _Stay] = {}
        self._closed = False

    def __contains__(self, bookie_id: str) -> bool:
        stay = self._stays.get(bookie_id)
        return stay is not None and stay.timer is not None

    def put(self, bookie_id: str) -> None:
        if bookie_id in self or self._closed:
            return
        now, length_s = self._clock.monotonic(), self._time_s
        last = self._stays.get(bookie_id)
        if last is not None and now < last.began + 3 * last.length_s:
            length_s = min(2 * last.length_s, _LONGEST_TIMES * self._time_s)
        timer = self._clock.call_later(length_s, lambda: self._end(bookie_id))
        self._stays[bookie_id] = _Stay(now, length_s, timer)

    def end_quarantine(self, bookie_id: str, *, tell: bool = True) -> None:
        stay = self._stays.pop(bookie_id, None)
        if stay is not None and stay.timer is not None:
            stay.timer.cancel()
            if tell:
                self._ended()

    def close(self) -> None:
        self._closed = True
        for bookie_id in list(self._stays):
            self.end_quarantine(bookie_id, tell=False)

    def _end(self, bookie_id: str) -> None:
        self._stays[bookie_id].timer = None
        self._ended()
