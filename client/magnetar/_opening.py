"""Waiting for a broker to open a producer or consumer, and seeing meanwhile whether the topic has gone elsewhere.

A broker that stands still, or that is reached no more, says nothing, for as long as its connection takes to be found
dead; and it may be the one that lost the topic to another. So as long as there is no answer, somebody is asked again
who serves the topic, and if that is another broker, this one is left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from magnetar._connections import Connections
from magnetar._within import within
from magnetar.exceptions import MagnetarException, ServiceUnitNotReady
from magnetar_wire.clock import Timer

__all__ = ["LOOK_AGAIN_S", "opening"]

LOOK_AGAIN_S: Final = 2.0


async def opening(
    connections: Connections,
    answer: asyncio.Future[None],
    topic: str,
    address: str,
    what: str,
    why: Callable[[], str] = str,
) -> None:
    """Raises what the answer raises, `Timeout` after the operation's time, which says `why` if that is known, and
    `ServiceUnitNotReady` when the topic has moved away from `address`."""
    watch = _Watch(connections, answer, topic, address)
    try:
        await within(connections, answer, f"{address} has not opened {what} of {topic}", why=why)
    finally:
        watch.end()


class _Watch:
    def __init__(self, connections: Connections, answer: asyncio.Future[None], topic: str, address: str) -> None:
        self._connections = connections
        self._answer = answer
        self._topic = topic
        self._address = address
        self._pause_s = LOOK_AGAIN_S
        # A task only where the answer takes its time: it nearly never does.
        self._looking: asyncio.Task[None] | None = None
        self._timer: Timer = connections.clock.call_later(LOOK_AGAIN_S, self._begin)

    def _begin(self) -> None:
        if not self._answer.done():
            self._looking = asyncio.get_running_loop().create_task(self._look())

    async def _look(self) -> None:
        connections = self._connections
        try:
            address = await connections.look(self._topic, connections.connection_timeout_s)
        except MagnetarException:
            address = self._address  # nobody knows better
        if self._answer.done():
            return
        if address != self._address:
            self._answer.set_exception(
                ServiceUnitNotReady(f"{self._topic} has moved from {self._address}, which did not answer, to {address}")
            )
            return
        # A topic that takes long to open is no reason for thousands of partitions to ask time and again.
        self._pause_s *= 2
        self._timer = connections.clock.call_later(self._pause_s, self._begin)

    def end(self) -> None:
        """At once: whoever was opened goes on in this very turn of the loop, before anything else can end it."""
        self._timer.cancel()
        if self._looking is not None:
            self._connections.cancel(self._looking)
