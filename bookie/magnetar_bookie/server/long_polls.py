"""Long polls: calls that wait until the LAC of a ledger rises above a value."""

from __future__ import annotations

import asyncio

from magnetar_wire.clock import Clock

__all__ = ["LongPolls"]


class LongPolls:
    def __init__(self, clock: Clock, max_waiting: int) -> None:
        self._clock = clock
        self._max_waiting = max_waiting
        self._count = 0
        # Ledger id → the waiters in the order of their calls, and the value that the LAC must exceed.
        self._waiters: dict[int, dict[asyncio.Future[None], int]] = {}

    def __len__(self) -> int:
        """The number of waiting calls."""
        return self._count

    async def wait(self, ledger_id: int, above: int, timeout_s: float) -> None:
        """Wait until the LAC exceeds `above`, the ledger is deleted, or time is up. Don't wait if too many do."""
        if self._count >= self._max_waiting or timeout_s <= 0:
            return
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def wake() -> None:
            if not woken.done():
                woken.set_result(None)

        self._count += 1
        waiters = self._waiters.setdefault(ledger_id, {})
        waiters[woken] = above
        timer = self._clock.call_later(timeout_s, wake)
        try:
            await woken
        finally:
            timer.cancel()
            self._count -= 1
            del waiters[woken]
            if not waiters and self._waiters.get(ledger_id) is waiters:
                del self._waiters[ledger_id]

    def wake(self, ledger_id: int, last_add_confirmed: int) -> None:
        """Wake the calls that wait for this LAC."""
        for woken, above in self._waiters.get(ledger_id, {}).items():
            if above < last_add_confirmed and not woken.done():
                woken.set_result(None)

    def wake_all(self, ledger_id: int) -> None:
        """Wake all calls that wait for this ledger, since it was deleted."""
        self.wake(ledger_id, 2**63)
