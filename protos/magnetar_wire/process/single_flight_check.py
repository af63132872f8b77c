"""A check that many callers share and that may hang: it runs once at a time, and callers wait for a limited time.

A caller that comes while the check runs waits for the same run. A run that hangs is not followed by another one, so
that callers who come every second don't pile up hanging checks. They get the answer that it hangs at once, until the
run ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from magnetar_wire.clock import Clock

__all__ = ["SingleFlightCheck"]


class SingleFlightCheck:
    """`check` raises an error if there is a problem. A caller waits until `timeout_s` after the start of the run, which
    may be changed between two calls."""

    def __init__(self, check: Callable[[], Coroutine[Any, Any, None]], timeout_s: float, clock: Clock) -> None:
        self._check = check
        self.timeout_s = timeout_s
        self._clock = clock
        self._run: asyncio.Task[None] | None = None
        self._started_at = 0.0

    async def find_problem(self, max_age_s: float = 0.0) -> str:
        """Return the problem that the check found; empty if there is none.

        The result of a run that began less than `max_age_s` ago is used again.
        """
        run = self._run
        if run is None or (run.done() and not self._clock.monotonic() - self._started_at < max_age_s):
            run = self._run = asyncio.get_running_loop().create_task(self._check(), name="health")
            self._started_at = self._clock.monotonic()
        left_s = self._started_at + self.timeout_s - self._clock.monotonic()
        await asyncio.wait([run], timeout=max(0.0, left_s))
        if not run.done():
            return f"has not answered for {self._clock.monotonic() - self._started_at:.1f} s"
        error = None if run.cancelled() else run.exception()
        return "" if error is None else f"failed: {type(error).__name__}: {error}"

    async def close(self) -> None:
        """Cancel the run in flight and wait for its end."""
        if self._run is not None:
            self._run.cancel()
            await asyncio.wait([self._run])
