"""Waits for something on a manual clock: time passes as long as nothing else happens.

Code may take many turns of the loop without waiting for the clock. So time passes in some short steps, then in one
until the next call is due. The code must not wait for another clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from magnetar_testing.clock import ManualClock

T = TypeVar("T")

_TURNS = 60
_SHORT_STEPS = 2
_SHORT_STEP_S = 0.05
_LONGEST_S = 600.0


class PassingTime:
    """Advances a clock by steps."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._short_steps = 0

    def step(self) -> None:
        """Advance the clock a little; every few steps until it makes a call."""
        self._short_steps = (self._short_steps + 1) % (_SHORT_STEPS + 1)
        seconds_to_call = None if self._short_steps else self._clock.seconds_to_next_call()
        self._clock.advance(_SHORT_STEP_S + (seconds_to_call or 0.0))


async def patiently(clock: ManualClock, work: Coroutine[Any, Any, T]) -> T:
    """Return or raise what the work does, however long that takes on the clock."""
    task = asyncio.get_running_loop().create_task(work)
    time, end = PassingTime(clock), clock.monotonic() + _LONGEST_S
    try:
        while not task.done():
            for _ in range(_TURNS):
                await asyncio.sleep(0)
                if task.done():
                    break
            else:
                assert clock.monotonic() < end, f"{_LONGEST_S} s have passed in vain"
                time.step()
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
            clock.advance(_SHORT_STEP_S)  # the body may look at what must not have happened yet
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
