"""Notices that a topic has more partitions: from time to time, and as soon as a broker reports it.

A broker reports a growth once, to the producers and consumers that are open on the first partition (`TopicGrown`). A
report that got lost, because the connection was broken, is made up for when the first partition is reopened, and by the
interval at the latest. If new partitions can't be opened, the attempt is repeated after short pauses, and later after
the interval.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from magnetar._connections.operations import Backoff
from magnetar_wire.clock import Clock
from magnetar_wire.randomness import Randomness

__all__ = ["GrowthWatch"]

# How many attempts follow each other after short pauses. Reported partitions that were not found by then may not exist:
# the topic may have been deleted and recreated since.
_MAX_ATTEMPTS: Final = 20


class GrowthWatch:
    def __init__(
        self,
        clock: Clock,
        randomness: Randomness,
        interval_s: float,
        open_new: Callable[[], Awaitable[int | None]],
    ) -> None:
        """`open_new` opens new partitions, and returns how many the topic has; None: not all could be opened."""
        self._clock = clock
        self._interval_s = interval_s
        self._open_new = open_new
        self._backoff = Backoff(randomness)
        # The highest number of partitions that a broker has reported.
        self._reported = 0
        self._is_due = asyncio.Event()

    def report(self, partitions: int) -> None:
        """A broker reports that the topic has this many partitions. 0: the number may have changed. On the loop."""
        self._reported = max(self._reported, partitions)
        self._is_due.set()

    async def run(self) -> None:
        """Open new partitions until this is cancelled."""
        attempts, pause_s = 0, self._interval_s
        while True:
            await self._wait(pause_s)
            self._is_due.clear()
            found = await self._open_new()
            if found is not None and found >= self._reported:
                attempts = 0
                self._backoff.reset()
            else:
                attempts += 1
            if 0 < attempts < _MAX_ATTEMPTS:
                pause_s = min(self._interval_s, self._backoff.next())
            else:
                pause_s, self._reported = self._interval_s, 0

    async def _wait(self, pause_s: float) -> None:
        timer = self._clock.call_later(pause_s, self._is_due.set)
        try:
            await self._is_due.wait()
        finally:
            timer.cancel()
