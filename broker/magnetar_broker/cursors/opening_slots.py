"""Bounds how many cursors of a topic are read at a time, so that none that hangs keeps the others waiting for long.

Theory of operation
-------------------
A read needs one of a fixed number of places. Places are granted in the order of the requests. A read whose bookies hang
would hold its place for `recovery_timeout_seconds`, so each read has a slice of time. A read that is past its slice is
cancelled as soon as another one waits for a place; while none waits it goes on. Its caller requests a place again,
behind all that wait, with a slice twice as long. So of N cursors each is read for the first time within
N / places * `FIRST_SLICE_S`, however many of them hang, and one that needs longer than a slice gets one that is long
enough.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from magnetar_wire.clock import Clock, Timer

__all__ = ["FIRST_SLICE_S", "OpeningSlots"]

T = TypeVar("T")

FIRST_SLICE_S: Final = 0.5


class OpeningSlots:
    """Runs reads, at most a fixed number at a time."""

    __slots__ = ("_clock", "_cut", "_places", "_waiting")

    def __init__(self, places: int, clock: Clock) -> None:
        self._clock = clock
        self._places = asyncio.Semaphore(places)
        # The reads without a place.
        self._waiting = 0
        # The reads that were cancelled and still hold their places.
        self._cut = 0

    async def run_read(self, read: Callable[[], Coroutine[Any, Any, T]], slice_s: float) -> T:
        """Wait for a place, and return what the read returns. Raises `TimeoutError` where it was cancelled because it
        was past its slice and another read needed the place."""
        self._waiting += 1
        try:
            await self._places.acquire()
        finally:
            self._waiting -= 1
        try:
            return await self._run_slice(read, slice_s)
        finally:
            self._places.release()

    async def _run_slice(self, read: Callable[[], Coroutine[Any, Any, T]], slice_s: float) -> T:
        loop = asyncio.get_running_loop()
        timer: Timer
        is_cut = False

        def end_slice() -> None:
            nonlocal timer, is_cut
            if self._waiting > self._cut:
                is_cut = True
                self._cut += 1
                deadline.reschedule(loop.time())
            else:
                timer = self._clock.call_later(FIRST_SLICE_S, end_slice)

        timer = self._clock.call_later(slice_s, end_slice)
        try:
            async with asyncio.timeout(None) as deadline:
                return await read()
        finally:
            timer.cancel()
            self._cut -= is_cut
