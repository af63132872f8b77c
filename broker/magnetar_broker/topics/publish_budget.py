"""A bound on the memory of entries that were received and are not decided: one per topic, and one for the broker.

Sizes are counted by `magnetar_wire.entry_memory`. Streams wait here before they are read on, and are woken in the order
in which they began to wait. An entry that is larger than the whole budget passes: streams wait only while it is used
up.
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
        # None until a stream waits for the first time: most topics never need it.
        self._waiting: deque[asyncio.Future[None]] | None = None

    def add(self, size_bytes: int) -> None:
        """Count received entries, even above the bound. The stream waits for capacity before it receives more."""
        self.used_bytes += size_bytes

    def release(self, size_bytes: int) -> None:
        """Return the memory of entries that are decided."""
        self.used_bytes -= size_bytes
        while self._waiting and self.used_bytes < self.max_bytes:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)

    @property
    def is_full(self) -> bool:
        return self.used_bytes >= self.max_bytes

    async def wait_for_capacity(self) -> None:
        while self.is_full:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            if self._waiting is None:
                self._waiting = deque()
            self._waiting.append(waiter)
            await waiter
