"""A fake clock for tests: it stands still until the test advances it.

    clock = ManualClock()
    clock.call_later(60, expire)
    clock.advance(59)       # nothing is called
    clock.advance(1)        # calls expire()

It implements `magnetar_wire.clock.Clock`, by which brokers, bookies and the SDK's internals get the time. Due calls run
within `advance`, in the order of their times; calls of the same time run in the order in which they were made.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable

from magnetar_wire.clock import Timer

__all__ = ["ManualClock"]


class _ManualTimer:
    def __init__(self, callback: Callable[[], object]) -> None:
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        self.callback = None


class ManualClock:
    """A clock that stands still until `advance` moves it."""

    def __init__(self, time_ms: int = 1_700_000_000_000, monotonic: float = 1000.0) -> None:
        self._time_ms = float(time_ms)
        self._monotonic = monotonic
        self._order = itertools.count()
        self._due: list[tuple[float, int, _ManualTimer]] = []

    def time_ms(self) -> int:
        return int(self._time_ms)

    def monotonic(self) -> float:
        return self._monotonic

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        timer = _ManualTimer(callback)
        heapq.heappush(self._due, (self._monotonic + max(0.0, seconds), next(self._order), timer))
        return timer

    async def sleep(self, seconds: float) -> None:
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def wake() -> None:
            if not woken.done():
                woken.set_result(None)

        timer = self.call_later(seconds, wake)
        try:
            await woken
        finally:
            timer.cancel()

    def seconds_to_next_call(self) -> float | None:
        """Return the seconds until the next call is due. None: no call is scheduled."""
        while self._due and self._due[0][2].callback is None:
            heapq.heappop(self._due)
        return max(0.0, self._due[0][0] - self._monotonic) if self._due else None

    def jump(self, milliseconds: int) -> None:
        """Move the wall clock only, as an operator or a time server does."""
        self._time_ms += milliseconds

    def advance(self, seconds: float) -> None:
        """Move both clocks forward, and make every call that becomes due, each at its own time."""
        until = self._monotonic + seconds
        while self._due and self._due[0][0] <= until:
            due, _, timer = heapq.heappop(self._due)
            self._move(due)
            callback, timer.callback = timer.callback, None
            if callback is not None:
                callback()
        self._move(until)

    def _move(self, monotonic: float) -> None:
        self._time_ms += max(0.0, monotonic - self._monotonic) * 1000
        self._monotonic = max(self._monotonic, monotonic)
