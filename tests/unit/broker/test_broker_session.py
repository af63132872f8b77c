"""A broker session: background tasks go on after any error."""

from __future__ import annotations

import asyncio

from magnetar_broker.broker_session import BrokerSession
from magnetar_testing.clock import ManualClock
from tests.unit.broker.subscription_scene import settle


async def test_failed_background_task_restarts_after_a_pause() -> None:
    """Without a pause, no other task would run."""
    session = BrokerSession.__new__(BrokerSession)
    session._clock = clock = ManualClock()
    begun = 0

    async def work() -> None:
        nonlocal begun
        begun += 1
        raise RuntimeError("it broke off")

    keeping = asyncio.ensure_future(session._restart_on_error(work))
    for times in (1, 2, 3):
        await settle()
        assert begun == times
        clock.advance(1.0)
    keeping.cancel()
