"""Time, as all parts ask for it.

Two clocks that must not be mixed up. `time_ms` is the wall clock: what is stored and shown, and may jump. `monotonic`
is what durations and deadlines go by: seconds from some start, never backwards, meaningless to another process.

Every part that needs the time takes a `Clock`, so that a test or a simulation can pass a fake one
(`magnetar_testing.clock`). `SystemClock` is the machine's.
"""

from __future__ import annotations

import asyncio
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
