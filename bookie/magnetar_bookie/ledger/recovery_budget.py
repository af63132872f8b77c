"""Limits the memory of all recoveries of a ledger client together.

A broker that takes over hundreds of topics recovers hundreds of ledgers at a time. Each recovery reads ahead and holds
records until they are written, so limits for each of them would not limit the process.

Theory of operation
-------------------
Each recovery has a `RecoveryShare`. Before a read it reserves the maximum size
of the answer (`reserve`). When the answer is there, the reservation is replaced by the memory of the records that the
recovery holds or is writing (`set_held`). Reservations are granted in the order of the requests, as long as they fit. A
fence doesn't wait for one: it contains a read if there is capacity (`try_reserve`), and none otherwise.

Two recoveries that both hold records and both wait for bytes would wait forever. So a recovery that can't proceed by
itself is granted one entry at once, regardless of the budget: it has no read in flight, no record to write, and none
being written (`is_stalled`). Then it holds only records above the first undecided entry, and only a read of that entry
is granted (`is_needed`), whose record is written before the next one is granted. So the maximum is the budget and one
entry per recovery. An answer may exceed its reservation if its first entry alone does. All sizes are memory
(magnetar_wire.entry_memory), so that many small entries can't exceed the limit.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["RecoveryBudget", "RecoveryShare"]


@dataclass(eq=False, slots=True)
class _Request:
    share: RecoveryShare
    size_bytes: int
    is_needed: Callable[[], bool]
    granted: asyncio.Future[int]


class RecoveryBudget:
    """The budget of all recoveries of a ledger client."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self.used_bytes = 0
        self._waiting: deque[_Request] = deque()

    def open_share(self) -> RecoveryShare:
        """Return the share of a new recovery."""
        return RecoveryShare(self)

    async def _reserve(self, share: RecoveryShare, size_bytes: int, is_needed: Callable[[], bool]) -> int:
        request = _Request(share, size_bytes, is_needed, asyncio.get_running_loop().create_future())
        self._waiting.append(request)
        share.waiting += 1
        self._grant(share)
        try:
            return await request.granted
        except asyncio.CancelledError:
            if request.granted.done() and not request.granted.cancelled():
                share.release(request.granted.result())
            else:
                self._remove(request)
                self._grant(share)
            raise

    def _remove(self, request: _Request) -> None:
        if request in self._waiting:
            self._waiting.remove(request)
            request.share.waiting -= 1

    def _grant(self, changed: RecoveryShare) -> None:
        """Grant requests in order as long as they fit, and one entry to the share that changed if it is stalled."""
        while self._waiting and self.used_bytes + self._waiting[0].size_bytes <= self._max_bytes:
            self._grant_to(self._waiting[0], self._waiting[0].size_bytes)
        if changed.waiting and changed.is_stalled:
            for request in [one for one in self._waiting if one.share is changed and not one.granted.cancelled()]:
                if request.is_needed():
                    self._grant_to(request, 1)
                    break

    def _grant_to(self, request: _Request, size_bytes: int) -> None:
        self._remove(request)
        if request.granted.cancelled():
            return
        self.used_bytes += size_bytes
        request.share.reads += 1
        request.granted.set_result(size_bytes)


class RecoveryShare:
    """The memory that one recovery uses. The owner closes it."""

    def __init__(self, budget: RecoveryBudget) -> None:
        self._budget = budget
        # Requests that wait, and reads in flight.
        self.waiting = 0
        self.reads = 0
        self._held_bytes = 0
        self._is_closed = False
        # Some of the held records are being written, or will be.
        self._is_writing = False

    @property
    def is_stalled(self) -> bool:
        """Whether nothing will change before another entry is read."""
        return not self.reads and not self._is_writing

    async def reserve(self, size_bytes: int, is_needed: Callable[[], bool]) -> int:
        """Wait until an answer of this size may be requested. Return the granted size, which is 1 for one entry.

        `is_needed` returns whether the recovery waits for this read, and no other read helps it. The caller releases
        the returned size after the read.
        """
        return await self._budget._reserve(self, size_bytes, is_needed)

    def try_reserve(self, size_bytes: int) -> bool:
        """Reserve without waiting. Return False if there is no capacity now."""
        budget = self._budget
        if budget._waiting or budget.used_bytes + size_bytes > budget._max_bytes:
            return False
        budget.used_bytes += size_bytes
        self.reads += 1
        return True

    def release(self, size_bytes: int) -> None:
        """End a read and its reservation."""
        self.reads -= 1
        self._change(-size_bytes)

    def set_held(self, size_bytes: int, *, is_writing: bool) -> None:
        """Note the memory of the held records, and whether some of them are being written, or will be."""
        if self._is_closed:
            return
        change = size_bytes - self._held_bytes
        self._held_bytes, self._is_writing = size_bytes, is_writing
        self._change(change)

    def close(self) -> None:
        """Release what is held. Reads in flight release their own reservations."""
        self.set_held(0, is_writing=False)
        self._is_closed = True

    def _change(self, size_bytes: int) -> None:
        self._budget.used_bytes += size_bytes
        self._budget._grant(self)
