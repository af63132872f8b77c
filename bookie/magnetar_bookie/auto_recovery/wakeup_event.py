"""Waiting for news or for a time, whichever is first."""

from __future__ import annotations

import asyncio

from magnetar_wire.clock import Clock

__all__ = ["WakeupEvent"]


class WakeupEvent:
    """Rung from anywhere on the loop; one waits for it. What rings while nobody waits is heard by the next wait."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._rung = asyncio.Event()

    def wake(self) -> None:
        self._rung.set()

    async def wait(self, seconds: float) -> None:
        timer = self._clock.call_later(max(0.0, seconds), self._rung.set)
        try:
            await self._rung.wait()
        finally:
            timer.cancel()
        self._rung.clear()
