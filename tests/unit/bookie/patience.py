"""Waits for something on a manual clock: time passes as long as nothing else happens."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from magnetar_testing.clock import ManualClock

T = TypeVar("T")

_TURNS = 60
_STEP_S = 0.05
_LONGEST_S = 600.0


async def patiently(clock: ManualClock, work: Coroutine[Any, Any, T]) -> T:
    """What it returns or raises, however long that takes on the clock."""
    task = asyncio.get_running_loop().create_task(work)
    end = clock.monotonic() + _LONGEST_S
    try:
        while not task.done():
            for _ in range(_TURNS):
                await asyncio.sleep(0)
                if task.done():
                    break
            else:
                assert clock.monotonic() < end, f"{_LONGEST_S} s have passed in vain"
                clock.advance(_STEP_S)
        return task.result()
    finally:
        if not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
