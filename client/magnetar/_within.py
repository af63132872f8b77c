"""Waiting for an answer as long as an operation may take, or less."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Final

from magnetar._connections import Connections
from magnetar.exceptions import Timeout

__all__ = ["LEAVING_S", "within"]

# Who leaves a broker, and has nothing pending there, waits no longer to hear that it was noticed.
LEAVING_S: Final = 3.0


async def within(
    connections: Connections,
    answer: asyncio.Future[None],
    what: str,
    most_s: float = math.inf,
    why: Callable[[], str] = str,
) -> None:
    """Wait for the answer for the operation's time, `most_s` at most.

    Raises what the answer raises, or Timeout, which says that `what` did not happen and, if that is known, `why`.
    """
    seconds = min(connections.operation_timeout_s, most_s)

    def late() -> None:
        if not answer.done():
            reason = why()
            answer.set_exception(Timeout(f"{what} within {seconds:g} s" + (f": {reason}" if reason else "")))

    timer = connections.clock.call_later(seconds, late)
    try:
        await answer
    finally:
        timer.cancel()
