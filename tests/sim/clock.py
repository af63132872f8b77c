"""The clocks of simulated processes: a common virtual time, and a wall clock for each process.

`ProcessClock` queues its timers in its process, whichever process calls it: the metadata server's timers belong to the
server, though a client's request sets them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tests.sim.loop import Handle, SimulatedLoop
from tests.sim.process import Process

__all__ = ["ProcessClock", "SimulatedClock"]

_START_MS: Final = 1_700_000_000_000


class SimulatedClock:
    """A process' clock; its timers belong to the calling process, which is the same one."""

    __slots__ = ("_loop", "_start_ms")

    def __init__(self, loop: SimulatedLoop, skew_ms: int = 0) -> None:
        self._loop = loop
        self._start_ms = _START_MS + skew_ms

    def time_ms(self) -> int:
        return self._start_ms + int(self._loop.now * 1000)

    def monotonic(self) -> float:
        return self._loop.now

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Handle:
        loop = self._loop
        return loop.call_at(loop.now + seconds if seconds > 0 else loop.now, callback)

    async def sleep(self, seconds: float) -> None:
        loop = self._loop
        woken = loop.create_future()
        timer = loop.call_at(loop.now + seconds if seconds > 0 else loop.now, _wake, woken)
        try:
            await woken
        finally:
            timer.cancel()


class ProcessClock(SimulatedClock):
    """A clock whose timers belong to one process, for all callers."""

    __slots__ = ("_process",)

    def __init__(self, loop: SimulatedLoop, process: Process, skew_ms: int = 0) -> None:
        super().__init__(loop, skew_ms)
        self._process = process

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Handle:
        loop = self._loop
        when = loop.now + seconds if seconds > 0 else loop.now
        return loop.call_at(when, callback, context=self._process.context)


def _wake(future: object) -> None:
    if not future.done():  # type: ignore[attr-defined]
        future.set_result(None)  # type: ignore[attr-defined]
