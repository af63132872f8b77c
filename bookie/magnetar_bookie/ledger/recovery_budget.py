"""One bound in bytes for what all recoveries of a ledger client hold at a time.

A broker that takes over hundreds of topics recovers hundreds of ledgers at once. Each recovery reads ahead and holds
records until they are written, so a bound for each alone is none for the process.

Theory of operation
-------------------
A recovery has a `RecoveryShare`. Before it reads, it reserves as many bytes as the answer may have (`reserve`); when
the answer is there, the reservation is replaced by the memory of the records that it holds or is writing (`set_held`).
Reservations are granted in the order in which they were asked for, as long as they fit. A fence does not wait for one:
it comes with a read if there is room (`try_reserve`), and without it else.

Two recoveries that both hold records and both wait for bytes would wait for ever. So a recovery that can't go on by
itself is granted one entry at once, whatever the budget: it has no read in flight, no record to write, and none being
written (`is_stalled`). All that it holds then are records above the first undecided entry, and only a read of that one
is granted (`is_needed`): what it brings is written before the next is granted. The most that is held is the budget, and
for each recovery one entry more; and an answer may be larger than what was reserved for it, if its first entry alone
is. All counts are of memory (magnetar_wire.entry_memory), so that small entries can't pass the bound.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["RecoveryBudget", "RecoveryShare"]


@dataclass(eq=False, slots=True)
class _Waiter:
    share: RecoveryShare
    size_bytes: int
    is_needed: Callable[[], bool]
    granted: asyncio.Future[int]


class RecoveryBudget:
    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self.used_bytes = 0
        self._waiting: deque[_Waiter] = deque()

    def open_share(self) -> RecoveryShare:
        return RecoveryShare(self)

    async def _reserve(self, share: RecoveryShare, size_bytes: int, is_needed: Callable[[], bool]) -> int:
        waiter = _Waiter(share, size_bytes, is_needed, asyncio.get_running_loop().create_future())
        self._waiting.append(waiter)
        share.waiting += 1
        self._grant(share)
        try:
            return await waiter.granted
        except asyncio.CancelledError:
            if waiter.granted.done() and not waiter.granted.cancelled():
                share.release(waiter.granted.result())
            else:
                self._leave(waiter)
                self._grant(share)
            raise

    def _leave(self, waiter: _Waiter) -> None:
        if waiter in self._waiting:
            self._waiting.remove(waiter)
            waiter.share.waiting -= 1

    def _grant(self, changed: RecoveryShare) -> None:
        """Grant what fits, in order; and one entry to the share that changed, if it can't go on without."""
        while self._waiting and self.used_bytes + self._waiting[0].size_bytes <= self._max_bytes:
            self._grant_to(self._waiting[0], self._waiting[0].size_bytes)
        if changed.waiting and changed.is_stalled:
            for waiter in [one for one in self._waiting if one.share is changed and not one.granted.cancelled()]:
                if waiter.is_needed():
                    self._grant_to(waiter, 1)
                    break

    def _grant_to(self, waiter: _Waiter, size_bytes: int) -> None:
        self._leave(waiter)
        if waiter.granted.cancelled():
            return
        self.used_bytes += size_bytes
        waiter.share.reads += 1
        waiter.granted.set_result(size_bytes)


class RecoveryShare:
    """What one recovery holds. `close` it."""

    def __init__(self, budget: RecoveryBudget) -> None:
        self._budget = budget
        self.waiting = 0
        # Reads in flight.
        self.reads = 0
        self._held_bytes = 0
        self._closed = False
        # Some of what is held is being written, or is about to be.
        self._writing = False

    @property
    def is_stalled(self) -> bool:
        """Nothing will change before another entry is read."""
        return not self.reads and not self._writing

    async def reserve(self, size_bytes: int, is_needed: Callable[[], bool]) -> int:
        """Wait until an answer of this size may be asked for. Return the size that may be, which is 1 for one entry.

        `is_needed` says whether the recovery waits for this read and no other can help it. `release` what was returned
        when the read is over.
        """
        return await self._budget._reserve(self, size_bytes, is_needed)

    def try_reserve(self, size_bytes: int) -> bool:
        """Reserve without waiting, and return whether there is room now."""
        budget = self._budget
        if budget._waiting or budget.used_bytes + size_bytes > budget._max_bytes:
            return False
        budget.used_bytes += size_bytes
        self.reads += 1
        return True

    def release(self, size_bytes: int) -> None:
        self.reads -= 1
        self._changed(-size_bytes)

    def set_held(self, size_bytes: int, *, writing: bool) -> None:
        """Note what the recovery holds. `writing`: some of that is to be written, or being written."""
        if self._closed:
            return
        change = size_bytes - self._held_bytes
        self._held_bytes, self._writing = size_bytes, writing
        self._changed(change)

    def close(self) -> None:
        """Give back what is held. Reads in flight give back their own."""
        self.set_held(0, writing=False)
        self._closed = True

    def _changed(self, size_bytes: int) -> None:
        self._budget.used_bytes += size_bytes
        self._budget._grant(self)
