"""The graceful shutdown of a process: the request for it, and its steps, each with a timeout.

A step that does not end in time is left running, since it may hang for ever, and the next one begins. So the shutdown
as a whole takes a limited time, as long as the event loop runs. `StopSignals` ends a process whose loop is blocked.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

__all__ = ["Shutdown"]

_log = logging.getLogger(__name__)


class Shutdown:
    """The request to shut down, and the timeout of each step. `step_timeout_s` is in seconds."""

    def __init__(self, step_timeout_s: float) -> None:
        self._step_timeout_s = step_timeout_s
        self._requested = asyncio.Event()

    def request(self) -> None:
        """Request the shutdown. Other threads must call this through the loop."""
        self._requested.set()

    async def wait_done_first(self, work: asyncio.Future[Any]) -> bool:
        """Wait until the work is done or the shutdown is requested. Return whether the work is done."""
        requested = asyncio.get_running_loop().create_task(self._requested.wait())
        try:
            either: list[asyncio.Future[Any]] = [work, requested]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            requested.cancel()
        return work.done()

    async def run_step(self, step: Coroutine[Any, Any, None], name: str, more_s: float = 0.0) -> bool:
        """Run a step, and return whether it ended within the timeout of a step plus `more_s`. Raise its error."""
        task = asyncio.get_running_loop().create_task(step)
        await asyncio.wait([task], timeout=self._step_timeout_s + more_s)
        if not task.done():
            _log.warning("%s did not finish within %s s", name, self._step_timeout_s + more_s)
            return False
        task.result()
        return True
