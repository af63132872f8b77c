"""Who waits for a ledger's LAC to rise: woken when it does, by the group that raised it, and by nothing in between."""

from __future__ import annotations

import asyncio

from magnetar_wire.clock import Clock

__all__ = ["LongPolls"]


class LongPolls:
    def __init__(self, clock: Clock, max_waiting: int) -> None:
        self._clock = clock
        self._max_waiting = max_waiting
        self._count = 0
        # Ledger id → who waits, in the order in which they came, and for a LAC above which.
        self._waiting: dict[int, dict[asyncio.Future[None], int]] = {}

    def __len__(self) -> int:
        """How many wait."""
        return self._count

    async def wait(self, ledger_id: int, above: int, timeout_s: float) -> None:
        """Returns when the LAC has risen above, the ledger is gone or time is up; at once where too many wait."""
        if self._count >= self._max_waiting or timeout_s <= 0:
            return
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def wake() -> None:
            if not woken.done():
                woken.set_result(None)

        self._count += 1
        waiting = self._waiting.setdefault(ledger_id, {})
        waiting[woken] = above
        timer = self._clock.call_later(timeout_s, wake)
        try:
            await woken
        finally:
            timer.cancel()
            self._count -= 1
            del waiting[woken]
            if not waiting and self._waiting.get(ledger_id) is waiting:
                del self._waiting[ledger_id]

    def risen(self, ledger_id: int, last_add_confirmed: int) -> None:
        for woken, above in self._waiting.get(ledger_id, {}).items():
            if above < last_add_confirmed and not woken.done():
                woken.set_result(None)

    def gone(self, ledger_id: int) -> None:
        """The ledger was deleted."""
        self.risen(ledger_id, 2**63)
