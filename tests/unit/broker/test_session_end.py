"""The time at which a broker assumes that its metadata session is over. The clock is advanced by the tests."""

from __future__ import annotations

import asyncio

import pytest

from magnetar_broker.session_end import wait_session_end
from magnetar_testing.clock import ManualClock
from magnetar_testing.metadata import MemoryServer

_STEP_S = 0.05


async def _pass(clock: ManualClock, seconds: float, over: asyncio.Task[str]) -> float:
    """Advance the clock until the session is over, at most by `seconds`. Return by how much."""
    passed = 0.0
    while passed < seconds and not over.done():
        clock.advance(_STEP_S)
        passed += _STEP_S
        for _ in range(10):
            await asyncio.sleep(0)
    return passed


@pytest.mark.parametrize(
    ("timeout_s", "trusted_s"),
    [
        # A second less than the timeout, or three quarters of a short one.
        (30.0, 29.0),
        (10.0, 9.0),
        (4.0, 3.0),
        (2.0, 1.5),
    ],
)
async def test_session_is_trusted_until_shortly_before_its_timeout(timeout_s: float, trusted_s: float) -> None:
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
    # It is checked each quarter of a second.
    assert trusted_s - since - _STEP_S <= passed <= trusted_s - since + 0.25 + _STEP_S
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
