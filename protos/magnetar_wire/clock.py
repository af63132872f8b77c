"""Time, as all parts ask for it.

Two clocks that must not be mixed up. `time_ms` is the wall clock: what is stored and shown, and may jump. `monotonic`
is what durations and deadlines go by: seconds from some start, never backwards, meaningless to another process.

Whoever keeps time takes a `Clock`, so that a test or a simulation can hand it one of its own. `SystemClock` is the
machine's. `ManualClock` stands still until it is told to move, and runs what is due in order of time, then of asking.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections.abc import Callable
from typing import Protocol


class Timer(Protocol):
    """A call that is due later."""

    def cancel(self) -> None:
        """The call does not happen, if it has not yet."""


class Clock(Protocol):
    """What tells the time and waits for it."""

    def time_ms(self) -> int:
        """The wall clock, in ms since 1970."""

    def monotonic(self) -> float:
        """Seconds that never go backwards."""

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        """Has `callback` called once, on the event loop, when `seconds` have passed."""

    async def sleep(self, seconds: float) -> None:
        """Returns when `seconds` have passed."""


class SystemClock:
    """The machine's clocks, and the running event loop's timers."""

    def time_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        return asyncio.get_running_loop().call_later(seconds, callback)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


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

    def jump(self, milliseconds: int) -> None:
        """Moves the wall clock alone, as an operator or a time server does."""
        self._time_ms += milliseconds

    def advance(self, seconds: float) -> None:
        """Moves both clocks on and makes every call that falls due on the way, each at its own time."""
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
