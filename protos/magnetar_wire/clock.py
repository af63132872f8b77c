"""The clock that all parts use.

There are two kinds of time, which must not be mixed. `time_ms` is the wall clock: for stored and displayed times; it
may jump. `monotonic` is for durations and deadlines: seconds since some start, never backwards, and meaningless to
another process.

Every part that needs the time takes a `Clock`, so that a test or a simulation can pass a fake one
(`magnetar_testing.clock`). `SystemClock` is the machine's clock.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol


class Timer(Protocol):
    """A call that is scheduled for later."""

    def cancel(self) -> None:
        """Cancel the call, if it was not made yet."""


class Clock(Protocol):
    """A source of the time, and of timers."""

    def time_ms(self) -> int:
        """Return the wall clock's time, in ms since 1970."""

    def monotonic(self) -> float:
        """Return a time in seconds that never goes backwards."""

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        """Call `callback` once, on the event loop, after `seconds`."""

    async def sleep(self, seconds: float) -> None:
        """Wait for `seconds`."""


class SystemClock:
    """The machine's clocks, and the running event loop's timers."""

    def time_ms(self) -> int:
        return time.time_ns() // 1_000_000

    # No function of ours around it: it is called several times per message.
    monotonic = staticmethod(time.monotonic)

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        return asyncio.get_running_loop().call_later(seconds, callback)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
