"""Waiting for an answer as long as an operation may take, or less."""

from __future__ import annotations

import asyncio
import math
from typing import Final

from magnetar._connections import Connections
from magnetar.exceptions import Timeout

__all__ = ["LEAVING_S", "within"]

# Who leaves a broker, and has nothing pending there, waits no longer to hear that it was noticed.
LEAVING_S: Final = 3.0


async def within(connections: Connections, answer: asyncio.Future[None], what: str, most_s: float = math.inf) -> None:
    """Raises what the answer raises, or Timeout, which says `what` did not happen. Waits for `most_s`, at most."""
    seconds = min(connections.operation_timeout_s, most_s)

    def late() -> None:
        if not answer.done():
            answer.set_exception(Timeout(f"{what} within {seconds:g} s"))

    timer = connections.clock.call_later(seconds, late)
    try:
        await answer
    finally:
        timer.cancel()
