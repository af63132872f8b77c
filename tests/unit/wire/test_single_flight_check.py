"""A check that many callers share and that may hang."""

from __future__ import annotations

import asyncio

from magnetar_wire.clock import SystemClock
from magnetar_wire.process.single_flight_check import SingleFlightCheck


class Check:
    """Counts its runs. A run ends when `answered` is set."""

    def __init__(self) -> None:
        self.runs = 0
        self.answered = asyncio.Event()
        self.error: Exception | None = None

    async def __call__(self) -> None:
        self.runs += 1
        await self.answered.wait()
        if self.error is not None:
            raise self.error


async def test_concurrent_callers_share_one_run() -> None:
    check = Check()
    shared = SingleFlightCheck(check, 30.0, SystemClock())
    callers = [asyncio.create_task(shared.find_problem()) for _ in range(5)]
    await asyncio.sleep(0)
    callers[0].cancel()
    check.answered.set()
    assert await asyncio.gather(*callers[1:]) == [""] * 4
    assert check.runs == 1
    assert await shared.find_problem(max_age_s=1000.0) == ""
    assert check.runs == 1
    assert await shared.find_problem() == ""
    assert check.runs == 2
    await shared.close()


async def test_a_hanging_run_is_reported_and_not_repeated() -> None:
    check = Check()
    shared = SingleFlightCheck(check, 0.01, SystemClock())
    for _ in range(3):
        assert "has not answered for" in await shared.find_problem(max_age_s=1000.0)
    assert check.runs == 1
    check.answered.set()
    while await shared.find_problem():
        pass
    check.error = ValueError("no")
    assert await shared.find_problem() == "failed: ValueError: no"
    await shared.close()
    await SingleFlightCheck(check, 1.0, SystemClock()).close()
