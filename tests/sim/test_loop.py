"""The simulated loop: virtual time, killed and paused processes, and runs without progress."""

from __future__ import annotations

import asyncio

import pytest

from tests.sim.clock import SimulatedClock
from tests.sim.loop import NoProgress, new_loop


def test_simulated_time_jumps_and_preserves_callback_order() -> None:
    loop = new_loop()
    seen: list[object] = []

    async def main() -> None:
        clock = SimulatedClock(loop)
        loop.call_later(3600, seen.append, "late")
        loop.call_later(1, seen.append, "first")
        loop.call_later(1, seen.append, "second")
        await clock.sleep(5000)
        async with asyncio.timeout(1):
            await asyncio.sleep(0.5)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await asyncio.sleep(10)
        await asyncio.gather(clock.sleep(1), clock.sleep(2))

    loop.run_until_complete(main())
    assert seen == ["first", "second", "late"]
    assert loop.elapsed_s == 5000 + 0.5 + 1 + 2
    loop.close()


def test_a_killed_process_never_runs_again() -> None:
    loop = new_loop()
    seen: list[object] = []
    victim = loop.process("victim")

    async def ticks() -> None:
        try:
            while True:
                await asyncio.sleep(1)
                seen.append(loop.elapsed_s)
        finally:
            seen.append(-1)

    async def owner() -> None:
        await asyncio.gather(ticks(), ticks())

    async def main() -> None:
        victim.spawn(owner())
        await asyncio.sleep(2.5)
        victim.kill()
        await asyncio.sleep(10)

    loop.run_until_complete(main())
    assert seen == [1, 1, 2, 2]
    loop.close()
    assert not loop.failures


def test_a_paused_process_runs_late() -> None:
    loop = new_loop()
    seen: list[object] = []
    victim = loop.process("victim")

    async def ticks() -> None:
        while True:
            await asyncio.sleep(1)
            seen.append(loop.elapsed_s)

    async def main() -> None:
        victim.spawn(ticks())
        await asyncio.sleep(1.5)
        victim.pause()
        await asyncio.sleep(10)
        victim.resume()
        await asyncio.sleep(1.2)

    loop.run_until_complete(main())
    assert seen == [1, 11.5, 12.5]
    loop.close()


def test_uncaught_errors_of_a_process_are_recorded() -> None:
    loop = new_loop()
    process = loop.process("p")

    async def breaks() -> None:
        raise ZeroDivisionError

    def raises() -> None:
        raise KeyError("k")

    async def main() -> None:
        process.spawn(breaks())
        process.call_soon(raises)
        await asyncio.sleep(1)

    loop.run_until_complete(main())
    process.tasks.clear()
    assert sorted(type(error).__name__ for _, _, error in loop.failures) == ["KeyError", "ZeroDivisionError"]
    loop.close()


def test_a_run_that_spins_or_hangs_fails() -> None:
    loop = new_loop()

    async def spins() -> None:
        while True:
            await asyncio.sleep(0)

    with pytest.raises(NoProgress, match="spins"):
        loop.run_until_complete(spins())
    loop.close()

    async def hangs() -> None:
        await loop.create_future()

    loop = new_loop()
    with pytest.raises(NoProgress, match="waits"):
        loop.run_until_complete(hangs())
    loop.close()
