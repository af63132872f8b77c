"""A wait for a time that another task can end early."""

from __future__ import annotations

import asyncio

from magnetar_wire.clock import Clock

__all__ = ["WakeupEvent"]


class WakeupEvent:
    """Ends the wait of one task. A `wake` while no task waits ends the next wait at once."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._event = asyncio.Event()

    def wake(self) -> None:
        self._event.set()

    async def wait(self, timeout_s: float) -> None:
        """Wait until `wake` is called, or the time is over."""
        timer = self._clock.call_later(max(0.0, timeout_s), self._event.set)
        try:
            await self._event.wait()
        finally:
            timer.cancel()
        self._event.clear()
