"""Until when a broker believes that its metadata session lives. Time is by hand."""

from __future__ import annotations

import asyncio

import pytest

from magnetar_broker.session_end import wait_session_end
from magnetar_testing.clock import ManualClock
from magnetar_testing.metadata import MemoryServer

_STEP_S = 0.05


async def _pass(clock: ManualClock, seconds: float, over: asyncio.Task[str]) -> float:
    """Lets so much time pass, or until it is over; how much it was."""
    passed = 0.0
    while passed < seconds and not over.done():
        clock.advance(_STEP_S)
        passed += _STEP_S
        for _ in range(10):
            await asyncio.sleep(0)
    return passed


@pytest.mark.parametrize(
    ("timeout_s", "believed_s"),
    [
        # A second less than the time-out; of short time-outs three quarters.
        (30.0, 29.0),
        (10.0, 9.0),
        (4.0, 3.0),
        (2.0, 1.5),
    ],
)
async def test_session_is_trusted_until_shortly_before_its_timeout(timeout_s: float, believed_s: float) -> None:
    """OWN-2, CHK-40: counted from the sending of the last request that was answered, which is never long ago."""
    clock = ManualClock()
    server = MemoryServer(clock, session_timeout_s=timeout_s)
    store = server.connect()
    over = asyncio.create_task(wait_session_end(store, clock))
    await _pass(clock, 10 * timeout_s, over)
    assert not over.done(), "all is answered"
    since = clock.monotonic() - store.session.answered_sent_at
    assert since <= min(1.0, timeout_s / 5) + _STEP_S
    server.suspend(store)
    passed = await _pass(clock, 2 * timeout_s, over)
    assert over.done()
    assert await over == "the store has not answered for too long"
    # It looks each quarter of a second.
    assert believed_s - since - _STEP_S <= passed <= believed_s - since + 0.25 + _STEP_S
    assert since + passed < timeout_s


@pytest.mark.parametrize("timeout_s", [2.0, 10.0])
async def test_late_answer_does_not_end_the_session(timeout_s: float) -> None:
    """Suspended is not lost: half of the time that is left may pass without one."""
    clock = ManualClock()
    server = MemoryServer(clock, session_timeout_s=timeout_s)
    store = server.connect()
    over = asyncio.create_task(wait_session_end(store, clock))
    for _ in range(5):
        await _pass(clock, timeout_s, over)
        server.suspend(store)
        await _pass(clock, timeout_s / 2, over)
        server.resume(store)
    assert not over.done()
    server.expire(store)
    await _pass(clock, 1.0, over)
    assert await over == "it was lost"
