"""Quarantine of bookies that failed lately: they are not chosen for new entries.

The time doubles each time that a bookie fails again soon after, up to a limit. Otherwise a ledger would change its
ensemble again and again because of a bookie that is registered but can't be reached from this process.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from magnetar_wire.clock import Clock, Timer

__all__ = ["Quarantine"]

# The longest quarantine, as a multiple of the first one.
_MAX_FACTOR: Final = 32


@dataclass(slots=True)
class _Stay:
    began: float
    length_s: float
    # None: it is over.
    timer: Timer | None


class Quarantine:
    """The bookies in quarantine: `in` tests for one."""

    def __init__(self, clock: Clock, time_s: float, on_end: Callable[[], object]) -> None:
        """`on_end` is called when a bookie may be chosen again."""
        self._clock = clock
        self._time_s = time_s
        self._on_end = on_end
        # The last stay of each bookie.
        self._stays: dict[str, _Stay] = {}
        self._is_closed = False

    def __contains__(self, bookie_id: str) -> bool:
        stay = self._stays.get(bookie_id)
        return stay is not None and stay.timer is not None

    def add(self, bookie_id: str) -> None:
        if bookie_id in self or self._is_closed:
            return
        now, length_s = self._clock.monotonic(), self._time_s
        last = self._stays.get(bookie_id)
        if last is not None and now < last.began + 3 * last.length_s:
            length_s = min(2 * last.length_s, _MAX_FACTOR * self._time_s)
        timer = self._clock.call_later(length_s, lambda: self._on_timer(bookie_id))
        self._stays[bookie_id] = _Stay(now, length_s, timer)

    def end(self, bookie_id: str, *, notify: bool = True) -> None:
        """End the bookie's quarantine, and forget that it failed."""
        stay = self._stays.pop(bookie_id, None)
        if stay is not None and stay.timer is not None:
            stay.timer.cancel()
            if notify:
                self._on_end()

    def close(self) -> None:
        self._is_closed = True
        for bookie_id in list(self._stays):
            self.end(bookie_id, notify=False)

    def _on_timer(self, bookie_id: str) -> None:
        self._stays[bookie_id].timer = None
        self._on_end()
