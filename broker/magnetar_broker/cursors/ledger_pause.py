"""The pause before a cursor creates the ledger that replaces a failed one. ledger_backoff.py determines its length.

Closing or resetting a cursor does not wait for the pause: `skip` ends the current pause, and `wait` returns that to
the task that pauses. Later pauses have their full length. So a bookie that refuses all adds gets one more ledger, not
many.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from magnetar_broker.managed_ledger.ledger_backoff import LedgerBackoff
from magnetar_wire.clock import Clock
from magnetar_wire.randomness import Randomness

__all__ = ["LedgerPause"]


class LedgerPause:
    __slots__ = ("_backoff", "_clock", "_over", "_randomness", "_skipping_calls")

    def __init__(self, clock: Clock, randomness: Randomness) -> None:
        self._clock = clock
        self._randomness = randomness
        self._backoff = LedgerBackoff()
        # Number of callers within `skip`.
        self._skipping_calls = 0
        # Done when the current pause is over; its result is whether `skip` ended it. None: no task pauses.
        self._over: asyncio.Future[bool] | None = None

    def count_failure(self) -> None:
        """Count a ledger that failed, or that could not be created."""
        self._backoff.count_failure(self._clock.monotonic(), self._randomness.random())

    @property
    def is_due(self) -> bool:
        return self._backoff.pause_s(self._clock.monotonic()) > 0

    @property
    def is_skipped(self) -> bool:
        return self._skipping_calls > 0

    async def wait(self) -> bool:
        """Wait until the pause is over. Return whether `skip` ended it. One task waits at a time."""
        assert self._over is None, "only one task may wait at a time"
        over: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._over = over
        timer = self._clock.call_later(self._backoff.pause_s(self._clock.monotonic()), lambda: self._end(skipped=False))
        try:
            return await over
        finally:
            timer.cancel()
            self._over = None

    def _end(self, *, skipped: bool) -> None:
        if self._over is not None and not self._over.done():
            self._over.set_result(skipped)

    @contextmanager
    def skip(self) -> Iterator[None]:
        """End the current pause. `is_skipped` is true within the block."""
        self._skipping_calls += 1
        self._end(skipped=True)
        try:
            yield
        finally:
            self._skipping_calls -= 1
