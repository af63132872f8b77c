"""A bound on the memory of entries that a broker has received and not decided: one per topic, one for the broker.

Sizes are those of `magnetar_wire.entry_memory`. Streams wait here before they are read on, and are woken in the order
in which they began to wait. An entry larger than the whole budget passes: streams wait only while it is used up.
"""

from __future__ import annotations

import asyncio
from collections import deque

__all__ = ["PublishBudget"]


class PublishBudget:
    __slots__ = ("_waiting", "max_bytes", "used_bytes")

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.used_bytes = 0
        # Made when somebody waits: most topics never need it.
        self._waiting: deque[asyncio.Future[None]] | None = None

    def take(self, size_bytes: int) -> None:
        """Always: what was received is there. Whoever takes waits for room before it receives more."""
        self.used_bytes += size_bytes

    def give_back(self, size_bytes: int) -> None:
        self.used_bytes -= size_bytes
        while self._waiting and self.used_bytes < self.max_bytes:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)

    @property
    def full(self) -> bool:
        """Whoever takes more waits for room first."""
        return self.used_bytes >= self.max_bytes

    async def room(self) -> None:
        while self.full:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            if self._waiting is None:
                self._waiting = deque()
            self._waiting.append(waiter)
            await waiter
