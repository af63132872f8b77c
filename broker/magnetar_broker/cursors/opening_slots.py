"""Limits how many cursors of a topic are read at a time, so that a read that hangs does not delay the others for long.

Theory of operation
-------------------
A read needs one of a fixed number of slots. Slots are granted in the order of the requests. A read whose bookies hang
would hold its slot for `recovery_timeout_seconds`, so each read has a slice of time. After its slice it is cancelled as
soon as another read waits for a slot; while none waits, it continues. Its caller requests a slot again, behind all that
wait, with a slice twice as long. So the first read of each of N cursors begins within N / slots * `FIRST_SLICE_S`,
however many of them hang, and a cursor that needs a long time gets a slice that is long enough.
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
    __slots__ = ("_cancelled", "_clock", "_slots", "_waiting")

    def __init__(self, slots: int, clock: Clock) -> None:
        self._clock = clock
        self._slots = asyncio.Semaphore(slots)
        # Number of reads without a slot.
        self._waiting = 0
        # Number of reads that were cancelled and still hold their slots.
        self._cancelled = 0

    async def run_read(self, read: Callable[[], Coroutine[Any, Any, T]], slice_s: float) -> T:
        """Wait for a slot, and return the result of the read.

        Raises `TimeoutError` if the read was cancelled, because its slice was over and another read needed the slot.
        """
        self._waiting += 1
        try:
            await self._slots.acquire()
        finally:
            self._waiting -= 1
        try:
            return await self._run_slice(read, slice_s)
        finally:
            self._slots.release()

    async def _run_slice(self, read: Callable[[], Coroutine[Any, Any, T]], slice_s: float) -> T:
        loop = asyncio.get_running_loop()
        timer: Timer
        is_cancelled = False

        def end_slice() -> None:
            nonlocal timer, is_cancelled
            if self._waiting > self._cancelled:
                is_cancelled = True
                self._cancelled += 1
                deadline.reschedule(loop.time())
            else:
                timer = self._clock.call_later(FIRST_SLICE_S, end_slice)

        timer = self._clock.call_later(slice_s, end_slice)
        try:
            async with asyncio.timeout(None) as deadline:
                return await read()
        finally:
            timer.cancel()
            self._cancelled -= is_cancelled
