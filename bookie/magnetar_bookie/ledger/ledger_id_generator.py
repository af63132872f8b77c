"""Generates ledger ids: each is higher than all that were generated before it was requested.

The ids come from one counter in the metadata store. A broker that takes over a thousand topics creates a thousand
ledgers at a time. If each raised the counter by itself, most of these changes would be refused. So one process makes
one change at a time, which raises the counter for all requests that wait. A request that arrives while a change is in
flight waits for the next one: an id must be above the counter's value at the time of its request, since a topic's floor
and a bookie's limbo rely on that.

The first waiting request makes the change for all others. If it is cancelled, they wait for the next change, and ids
that may have been generated are not used.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

__all__ = ["LedgerIdGenerator"]


class _Request:
    __slots__ = ("error", "ledger_id")

    def __init__(self) -> None:
        self.ledger_id: int | None = None
        self.error: Exception | None = None


class LedgerIdGenerator:
    """Generates the ids of the ledgers that one process creates."""

    def __init__(self, raise_counter: Callable[[int], Awaitable[int]]) -> None:
        """`raise_counter` raises the counter by its argument, and returns the new value."""
        self._raise_counter = raise_counter
        self._lock = asyncio.Lock()
        self._waiting: list[_Request] = []

    async def generate_ledger_id(self) -> int:
        """Return a new id. Raises what `raise_counter` raises."""
        request = _Request()
        self._waiting.append(request)
        try:
            async with self._lock:
                if request.ledger_id is None and request.error is None:
                    await self._generate_for_all()
        finally:
            if request in self._waiting:  # cancelled
                self._waiting.remove(request)
        if request.error is not None:
            raise request.error
        assert request.ledger_id is not None
        return request.ledger_id

    async def _generate_for_all(self) -> None:
        requests, self._waiting = self._waiting, []
        try:
            last = await self._raise_counter(len(requests))
        except Exception as error:  # noqa: BLE001 (each request raises it)
            for request in requests:
                request.error = error
            return
        except BaseException:
            self._waiting = requests + self._waiting
            raise
        for ledger_id, request in enumerate(requests, last - len(requests) + 1):
            request.ledger_id = ledger_id
