"""Waits for something on a manual clock: time passes as long as nothing else happens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from magnetar_testing.clock import ManualClock

T = TypeVar("T")

_TURNS = 60
_STEP_S = 0.05
_LONGEST_S = 600.0


async def patiently(clock: ManualClock, work: Coroutine[Any, Any, T], *, to_next_call: bool = False) -> T:
    """What it returns or raises, however long that takes on the clock.

    With `to_next_call` time passes in one step until the next call is due, which is right where nothing waits for
    another clock, and much faster.
    """
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
                step_s = clock.seconds_to_next_call() if to_next_call else None
                clock.advance(max(_STEP_S, step_s or 0.0))
        return task.result()
    finally:
        if not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def passing_time(clock: ManualClock) -> AsyncIterator[None]:
    """Have time pass on the clock while the body waits and nothing else happens. Fails a body that waits in vain."""
    body, end = asyncio.current_task(), clock.monotonic() + _LONGEST_S
    assert body is not None

    async def pass_time() -> None:
        while clock.monotonic() < end:
            for _ in range(_TURNS):
                await asyncio.sleep(0)
            clock.advance(_STEP_S)
        body.cancel()

    passing = asyncio.get_running_loop().create_task(pass_time())
    try:
        yield
    except asyncio.CancelledError:
        assert clock.monotonic() < end, f"{_LONGEST_S} s have passed in vain"
        raise
    finally:
        passing.cancel()
        await asyncio.wait([passing])
