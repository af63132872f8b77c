"""The end of a process, which somebody asks for: what is under way meanwhile, and steps that have a bound each.

A step that does not end in time is left as it is, since it may hang for ever, and the next one is taken. So the end as
a whole has a bound. It holds while the event loop turns; for one that stands still there is `StopSignals`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

__all__ = ["Ending"]

_log = logging.getLogger(__name__)


class Ending:
    def __init__(self, step_timeout_s: float) -> None:
        self._step_timeout_s = step_timeout_s
        self._asked = asyncio.Event()

    def ask(self) -> None:
        """The process is to end. From another thread: through the loop."""
        self._asked.set()

    async def comes_after(self, work: asyncio.Future[Any]) -> bool:
        """Whether the work is done before the process is to end; waits for either."""
        asked = asyncio.get_running_loop().create_task(self._asked.wait())
        try:
            either: list[asyncio.Future[Any]] = [work, asked]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            asked.cancel()
        return work.done()

    async def within(self, step: Coroutine[Any, Any, None], what: str, more_s: float = 0.0) -> bool:
        """Whether the step was done in time, `more_s` above that of any step. Raises what it raised."""
        task = asyncio.get_running_loop().create_task(step)
        await asyncio.wait([task], timeout=self._step_timeout_s + more_s)
        if not task.done():
            _log.warning("%s did not finish within %s s", what, self._step_timeout_s + more_s)
            return False
        task.result()
        return True
