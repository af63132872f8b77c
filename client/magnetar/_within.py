"""Waiting for an answer as long as an operation may take."""

from __future__ import annotations

import asyncio

from magnetar._connections import Connections
from magnetar.exceptions import Timeout

__all__ = ["within"]


async def within(connections: Connections, answer: asyncio.Future[None], what: str) -> None:
    """Raises what the answer raises, or Timeout, which says `what` did not happen."""
    seconds = connections.operation_timeout_s

    def late() -> None:
        if not answer.done():
            answer.set_exception(Timeout(f"{what} within {seconds} s"))

    timer = connections.clock.call_later(seconds, late)
    try:
        await answer
    finally:
        timer.cancel()
